"""Steps over users' sequences: each target is scored by what came before it, as where it is tested."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from gmlfm import Dataset
from gmlfm.data.attributes import AttributeTable
from gmlfm.data.histories import Histories
from gmlfm.fitting.memory import MemoryPlan
from gmlfm.models.base import ItemSide, UserSide
from gmlfm.models.sasrec import SASRec
from gmlfm.training.engines.sequences import SequenceEngine
from gmlfm.training.row_trainer import RowTrainer
from gmlfm.training.sampling.history_batches import HistoryBatch
from gmlfm.training.settings import Settings
from gmlfm.training.trainer import NullObserver

N_USERS, N_ITEMS, LENGTH = 6, 12, 8
PLAIN = {"k": 4, "length": LENGTH, "dropout": 0.0, "cold_start_rate": 0.0, "v_scale": 0.5, "batch_size": 1000, "threads": 1}


def table(seed: int = 0) -> pl.DataFrame:
    """Users with 0 to 10 earlier rows, two rows at most times."""
    rng = np.random.default_rng(seed)
    rows = [
        (f"u{user}", f"i{item}", place // 2)
        for user in range(N_USERS)
        for place, item in enumerate(rng.permutation(N_ITEMS)[: 1 + 2 * user])
    ]
    return pl.DataFrame(rows, schema=["user", "item", "time"], orient="row")


def dataset(interactions: pl.DataFrame, ties: str = "strict", repeats: str = "merge", sells_once: bool = False) -> Dataset:
    colours = ["red", "blue", "green"] * (N_ITEMS // 3)
    items = pl.DataFrame({"item": [f"i{n}" for n in range(N_ITEMS)], "colour": colours, "listed": [0] * N_ITEMS})
    availability = {"sells_once": True, "listed": "listed"} if sells_once else {}
    return Dataset.from_tables(
        interactions,
        None,
        items,
        schema={
            "interactions": {"user": "user", "item": "item", "time": "time", "ties": ties, "repeats": repeats},
            "items": {"id": "item", "fields": {"colour": "category"}, **availability},
        },
    )


def trainer_of(data: Dataset, device: str = "cpu", **settings: Any) -> RowTrainer:
    """On all rows."""
    made = Settings.make("sasrec", "topn", {**PLAIN, **settings})
    plan = MemoryPlan(data, made, "none", {}, "cpu")
    inputs = plan.selection_inputs()
    model = plan.settings.build(inputs.layout)
    assert isinstance(model, SASRec)
    model.attach(inputs)
    return RowTrainer(model, inputs.layout.n_rows, plan.settings.training, inputs.batches(), device)


def engine_of(trainer: RowTrainer) -> SequenceEngine:
    assert isinstance(trainer.engine, SequenceEngine)
    trainer.model.eval()
    return trainer.engine


def batch_of(trainer: RowTrainer) -> HistoryBatch:
    """All rows, in pieces."""
    (batch,) = trainer.batches.epoch(0)
    assert isinstance(batch, HistoryBatch)
    return batch


def items_of(data: Dataset) -> ItemSide:
    return MemoryPlan(data, Settings.make("sasrec", "topn", {}), "none", {}, "cpu").selection_inputs().items


Key = tuple[tuple[int, ...], int]  # the history and the target of a row


def keys_of(batch: HistoryBatch) -> list[Key]:
    had = batch.had
    return [
        (tuple(had.items[had.start[row] : had.stop[row]].tolist()), int(target)) for row, target in enumerate(batch.targets)
    ]


def training_scores(trainer: RowTrainer, batch: HistoryBatch) -> np.ndarray:
    """(B, items), as a step has them."""
    with torch.no_grad():
        vectors = engine_of(trainer).vectors(batch, np.arange(N_ITEMS, dtype=np.int32), np.random.default_rng(0))
    return (vectors.users @ vectors.items.T).numpy()


def scores_of_the_data(trainer: RowTrainer, data: Dataset) -> dict[Key, np.ndarray]:
    """By each row's history and target, as the model scores them outside of training."""
    rows = np.arange(data.n_interactions)
    history = Histories.of(data).before(rows)
    users = UserSide(np.full(len(rows), -1, np.int32), AttributeTable(*np.zeros((2, len(rows), 0))), history)  # type: ignore[arg-type]
    scores = trainer.model.over(items_of(data)).score_all(users, np.arange(N_ITEMS, dtype=np.int32))
    return {
        (tuple(history.of_user(row).tolist()), int(data.item_numbers[row])): of_row
        for row, of_row in zip(rows, scores, strict=True)
    }


def largest_difference(trainer: RowTrainer, data: Dataset, batch: HistoryBatch, keys: list[Key]) -> float:
    expected = scores_of_the_data(trainer, data)
    assert set(keys) == set(expected)
    scores = training_scores(trainer, batch)
    return max(float(np.abs(of_row - expected[key]).max()) for of_row, key in zip(scores, keys, strict=True))


@pytest.mark.parametrize("ties", ["strict", "file"])
def test_a_target_is_scored_as_where_it_is_tested(ties: str) -> None:
    data = dataset(table(), ties)
    trainer = trainer_of(data, length=10)
    batch = batch_of(trainer)
    assert largest_difference(trainer, data, batch, keys_of(batch)) < 1e-5


@pytest.mark.parametrize("ties", ["strict", "file"])
def test_a_planted_leak_is_caught(ties: str) -> None:
    """Histories that end behind the target instead of before it."""
    data = dataset(table(), ties)
    trainer = trainer_of(data, length=10)
    batch = batch_of(trainer)
    piece_end = np.repeat(batch.row_stop[batch.pieces[1:] - 1], np.diff(batch.pieces))
    leaking = replace(batch, row_stop=np.minimum(batch.row_stop + 1, piece_end))
    assert largest_difference(trainer, data, leaking, keys_of(batch)) > 1e-2


def test_later_events_move_no_score_and_no_loss_of_earlier_targets() -> None:
    trainer = trainer_of(dataset(table()), length=10)
    batch = batch_of(trainer)
    scores = training_scores(trainer, batch)
    piece = int(np.argmax(np.diff(batch.pieces)))
    first, last = batch.pieces[piece], batch.pieces[piece + 1]
    for row in range(first, last):
        is_earlier = (batch.row_stop <= batch.row_stop[row]) | (np.arange(len(batch)) < first) | (np.arange(len(batch)) >= last)
        events = batch.events.copy()
        later = slice(batch.row_stop[row], batch.row_stop[last - 1])
        events[later] = (events[later] + 1) % N_ITEMS
        changed = replace(batch, events=events)
        np.testing.assert_array_equal(training_scores(trainer, changed)[is_earlier], scores[is_earlier])
        weights = is_earlier.astype(np.float32)
        losses = [engine_of(trainer).forward(replace(shown, weights=weights)).loss.item() for shown in (batch, changed)]
        assert losses[0] == losses[1]
        if later.stop > later.start:
            assert not np.allclose(training_scores(trainer, changed)[~is_earlier], scores[~is_earlier], atol=1e-3)


def test_events_of_the_targets_own_time_count_by_file_order_alone() -> None:
    interactions = pl.DataFrame(
        [("a", "i1", 0), ("a", "i2", 1), ("a", "i3", 1), ("b", "i1", 0)], schema=["user", "item", "time"], orient="row"
    )
    histories = {}
    for ties in ("strict", "file"):
        data = dataset(interactions, ties)
        batch = batch_of(trainer_of(data))
        number = {item: place for place, item in enumerate(data.items.ids.to_list())}
        histories[ties] = dict((target, history) for history, target in keys_of(batch))[number["i3"]]
    assert histories == {"strict": (number["i1"],), "file": (number["i1"], number["i2"])}


def test_a_long_user_is_scored_by_the_latest_events_of_each_piece() -> None:
    data = dataset(table())
    trainer = trainer_of(data, length=4)
    batch, model = batch_of(trainer), trainer.model
    scores = training_scores(trainer, batch)
    assert isinstance(model, SASRec)
    assert len(batch.pieces) - 1 > N_USERS
    vectors = model.over(items_of(data)).scorer._vectors
    for piece, (start, stop) in enumerate(zip(batch.pieces[:-1], batch.pieces[1:], strict=True)):
        begin = max(batch.row_first[start], batch.row_stop[stop - 1] - 4)
        for row in range(start, stop):
            shown = torch.from_numpy(batch.events[begin : batch.row_stop[row]].astype(np.int64))
            with torch.no_grad():
                end = model.outputs(vectors[shown].unsqueeze(0))[0, -1]
            np.testing.assert_allclose(scores[row], (vectors @ end).numpy(), rtol=1e-4, atol=1e-5, err_msg=f"piece {piece}")


def slow_loss(trainer: RowTrainer, batch: HistoryBatch, columns: np.ndarray, correction: float, masks: bool = True) -> float:
    losses = []
    for (history, target), scores in zip(keys_of(batch), training_scores(trainer, batch), strict=True):
        others = [item for item in columns if item != target and not (masks and item in history)]
        logits = np.array([scores[target], *(scores[item] + correction for item in others)], np.float64)
        losses.append(float(np.log(np.exp(logits - logits[0]).sum())))
    weights = np.ones(len(batch)) if batch.weights is None else batch.weights
    return float(np.average(losses, weights=weights))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("repeats", ["merge", "keep"])
def test_the_loss_is_a_softmax_over_what_the_user_had_not(weighted: bool, repeats: str) -> None:
    trainer = trainer_of(dataset(table(), repeats=repeats))
    batch = batch_of(trainer)
    if weighted:
        batch = replace(batch, weights=np.linspace(0.5, 2.0, len(batch), dtype=np.float32))
    loss = engine_of(trainer).forward(batch).loss.item()
    assert loss == pytest.approx(slow_loss(trainer, batch, np.arange(N_ITEMS), 0.0, masks=repeats == "merge"), rel=1e-5)


def test_what_is_masked_is_what_users_had_not_what_is_shown_of_them() -> None:
    trainer = trainer_of(dataset(table()))
    batch = batch_of(trainer)
    nothing = replace(batch, had=replace(batch.had, is_had=np.zeros_like(batch.had.is_had)))
    loss = engine_of(trainer).forward(nothing).loss.item()
    assert loss == pytest.approx(slow_loss(trainer, batch, np.arange(N_ITEMS), 0.0, masks=False), rel=1e-5)


def test_shared_negatives_are_corrected_for_their_rate() -> None:
    trainer = trainer_of(dataset(table()), n_negatives=4)
    batch = batch_of(trainer)
    drawn = np.random.default_rng(batch.seed).choice(np.arange(N_ITEMS, dtype=np.int32), 4, replace=False, shuffle=False)
    loss = engine_of(trainer).forward(batch).loss.item()
    assert loss == pytest.approx(slow_loss(trainer, batch, drawn, math.log(N_ITEMS / 4)), rel=1e-5)


@pytest.mark.parametrize("loss", ["softmax", "bpr", "squared"])
def test_targets_of_items_that_sell_once_have_negatives_of_their_own(loss: str) -> None:
    interactions = table().unique(subset="item", keep="any", maintain_order=True).with_columns(time=pl.int_range(pl.len()))
    data = dataset(interactions, sells_once=True)
    trainer = trainer_of(data, loss=loss, n_negatives=2)
    batch = batch_of(trainer)
    assert batch.negatives is not None
    assert batch.negatives.shape[1] == 2
    before = trainer.table.clone()
    assert math.isfinite(trainer.run_epoch(NullObserver()))
    assert not torch.equal(trainer.table, before)


def test_ids_are_dropped_at_their_rate_in_sequences_and_among_the_scored() -> None:
    data = dataset(table())
    trainer = trainer_of(data, cold_start_rate=0.5)
    unknown = engine_of(trainer)._ids.unknown_item
    before = trainer.table.clone()
    trainer.run_epoch(NullObserver())
    assert not torch.equal(trainer.table[unknown], before[unknown])
    without = trainer_of(data)
    before = without.table.clone()
    without.run_epoch(NullObserver())
    assert torch.equal(without.table[unknown], before[unknown])


def test_a_reading_is_the_loss_without_dropout_and_sees_equal_scores() -> None:
    trainer = trainer_of(dataset(table()), dropout=0.5)
    batch, engine = batch_of(trainer), engine_of(trainer)
    reading = engine.reading(batch, trainer.model, trainer.table)
    assert reading == engine.reading(batch, trainer.model, trainer.table)
    assert reading.loss == pytest.approx(slow_loss(trainer, batch, np.arange(N_ITEMS), 0.0), rel=1e-5)
    assert not reading.is_constant
    trainer.table.zero_()
    assert engine.reading(batch, trainer.model, trainer.table).is_constant


@pytest.mark.gpu
@pytest.mark.parametrize("n_negatives", ["all", 4])
def test_an_epoch_on_a_gpu_learns_what_it_does_on_a_cpu(n_negatives: str | int) -> None:
    data, losses, tables = dataset(table()), [], []
    for device in ("cpu", "cuda"):
        trainer = trainer_of(data, device, n_negatives=n_negatives)
        losses.append(trainer.run_epoch(NullObserver()))
        tables.append(trainer.table.cpu())
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    torch.testing.assert_close(tables[0], tables[1], rtol=1e-3, atol=1e-4)
