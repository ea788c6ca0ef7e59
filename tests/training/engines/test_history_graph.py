"""The engine for a device that holds everything takes the steps of the general engine; here on a CPU, without a recording."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch

from gmlfm.data.dataset import Dataset
from gmlfm.fitting.fit import make_plan
from gmlfm.training.engines.history import HistoryEngine
from gmlfm.training.engines.history_graph import HistoryGraphEngine, ResidentHistories, RowNumbers, fits
from gmlfm.training.row_trainer import RowTrainer
from gmlfm.training.sampling.history_batches import HistoryBatches
from gmlfm.training.settings import Settings

ALL_ROLES = "last,recent,past"


def made_data(seed: int = 0) -> Dataset:
    rng = np.random.default_rng(seed)
    pairs = rng.permutation(30 * 40)[:400]  # no pair twice
    rows = pl.DataFrame({"u": pairs // 40, "i": pairs % 40, "t": rng.integers(0, 60, 400)})
    users = pl.DataFrame({"u": np.arange(30), "city": rng.choice(["a", "b", None], 30)})
    items = pl.DataFrame({"i": np.arange(40), "tags": [["x", "y", "z"][: 1 + i % 3] for i in range(40)]})
    schema = {
        "interactions": {"user": "u", "item": "i", "time": "t"},
        "users": {"id": "u", "fields": {"city": "category"}},
        "items": {"id": "i", "fields": {"tags": "set"}},
    }
    return Dataset.from_tables(rows, users, items, schema)


def trainer(model: str = "fm", **given: object) -> RowTrainer:
    options = {"history": ALL_ROLES, "history_dropout": 0.0, "cold_start_rate": 0.0, "negatives": "all", "k": 8, **given}
    plan = make_plan(made_data(), Settings.make(model, "topn", {**options, "threads": 1}), "auto")
    inputs = plan.selection_inputs()
    built = plan.settings.build(inputs.layout)
    built.attach(inputs)
    return RowTrainer(built, inputs.layout.n_rows, plan.settings.training, inputs.batches())  # type: ignore[arg-type]


@pytest.mark.parametrize("model", ["fm", "mf", "gml-fm"])
@pytest.mark.parametrize("given", [{}, {"history_length": 2, "half_life": 0.7, "weight_decay": 0.1}])
def test_it_takes_the_steps_of_the_general_engine(model: str, given: dict[str, object]) -> None:
    general, resident = trainer(model, piece=1, **given), trainer(model, piece=1, **given)
    assert isinstance(general.engine, HistoryEngine)
    batches = resident.batches
    assert isinstance(batches, HistoryBatches)
    data = ResidentHistories(batches, torch.device("cpu"))
    engine = HistoryGraphEngine(resident.model, resident.rows, resident.dense, data, batches)
    for batch in general.batches.epoch(0):
        ((loss, _),) = general.engine.run(batch, 0)
        # The rows of the batch, in the order of the targets that both have.
        rows = np.array([_place(batches, batch, row) for row in range(len(batch))])
        numbers = RowNumbers(torch.from_numpy(rows)[None], torch.ones(1, len(rows)), len(rows))
        if len(rows) != data.groups_per_step:
            engine._step_rows, engine._step_weights = torch.zeros(len(rows), dtype=torch.int64), torch.ones(len(rows))
        ((other_loss, n_rows),) = engine.run(numbers, 0)
        assert n_rows == len(batch)
        assert other_loss == pytest.approx(loss, rel=1e-5)
    torch.testing.assert_close(resident.table, general.table, rtol=2e-3, atol=2e-5)


def _place(batches: HistoryBatches, batch: object, row: int) -> int:
    """A target that is alike: with the same item, earlier events and user attributes."""
    had = batch.had  # type: ignore[attr-defined]
    events = had.items[had.start[row] : had.stop[row]]
    for place in np.flatnonzero(batches.items == batch.targets[row]):  # type: ignore[attr-defined]
        start = batches.histories.starts[batches.users[place]]
        own = batches.histories.items[start : batches.stops[place]]
        attributes = batches.encoded.user.ids[batches.users[place]]
        is_alike = np.array_equal(attributes, batch.users.ids[row])  # type: ignore[attr-defined]
        if is_alike and np.array_equal(own, events):
            return int(place)
    raise AssertionError("no such target")


def test_an_epoch_has_every_target_once_and_padding_without_weight() -> None:
    made = trainer()
    assert isinstance(made.batches, HistoryBatches)
    data = ResidentHistories(made.batches, torch.device("cpu"))
    numbers = list(data.epoch(0))
    rows = torch.cat([part.rows.flatten() for part in numbers])[: data.n_instances]
    weights = torch.cat([part.weights.flatten() for part in numbers])
    assert sorted(rows.tolist()) == list(range(data.n_instances))
    assert float(weights.sum()) == data.n_instances
    assert sum(part.n_rows for part in numbers) == data.n_instances
    assert [part.rows.tolist() for part in data.epoch(1)] != [part.rows.tolist() for part in numbers]


def test_training_by_it_learns_what_training_by_the_general_engine_learns() -> None:
    general, resident = trainer(epochs=4, lr=0.02, weight_decay=0.0), trainer(epochs=4, lr=0.02, weight_decay=0.0)
    assert isinstance(resident.batches, HistoryBatches)
    resident._resident = ResidentHistories(resident.batches, torch.device("cpu"))
    resident._engine = HistoryGraphEngine(resident.model, resident.rows, resident.dense, resident._resident, resident.batches)
    losses = []
    for made in (general, resident):
        values: list[float] = []

        class Losses:
            def __init__(self, values: list[float]) -> None:
                self.values = values

            def on_step(self, done: int, total: int, loss: float) -> None:
                pass

            def on_epoch(self, report: object, trainer: object) -> None:
                self.values.append(report.loss)  # type: ignore[attr-defined]

        made.fit(None, "", Losses(values))
        losses.append(values)
    assert losses[1] == pytest.approx(losses[0], rel=0.05)
    assert losses[1][-1] < 0.97 * losses[1][0]


def test_it_says_what_does_not_fit() -> None:
    made = trainer()
    assert isinstance(made.batches, HistoryBatches)
    assert fits(made.batches, made.model, made.rows, "softmax")
    assert not fits(made.batches, made.model, made.rows, "squared")
    assert not fits(trainer("gml-fm", negatives=8).batches, trainer("gml-fm").model, made.rows, "softmax")  # type: ignore[arg-type]
    assert not fits(trainer(negatives=8).batches, made.model, made.rows, "softmax")  # type: ignore[arg-type]


def test_what_users_had_beside_their_history_is_left_to_the_general_engine() -> None:
    made = trainer()
    assert isinstance(made.batches, HistoryBatches)
    made.batches.had = replace(made.batches.histories)
    assert not fits(made.batches, made.model, made.rows, "softmax")


def test_a_step_must_fit_in_memory_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 30 users and 40 items the table of what was had is smaller than the scores of a step of 64 rows."""
    made = trainer()
    assert isinstance(made.batches, HistoryBatches)
    for most, expected in ((4 * 64 * 40, True), (4 * 64 * 40 - 1, False)):
        monkeypatch.setattr("gmlfm.training.engines.history_graph._MOST_BYTES", most)
        assert fits(made.batches, made.model, made.rows, "softmax") == expected


def test_windows_are_no_wider_than_the_longest_history() -> None:
    for length, expected in ((100, None), (3, 3)):
        made = trainer(history_length=length)
        assert isinstance(made.batches, HistoryBatches)
        data = ResidentHistories(made.batches, torch.device("cpu"))
        engine = HistoryGraphEngine(made.model, made.rows, made.dense, data, made.batches)
        longest = max(
            len(made.batches.histories.before(made.batches.rows[[row]]).items) for row in range(len(made.batches.rows))
        )
        assert 3 < longest < 30
        assert len(engine._ages) == (expected or longest)


def test_a_model_that_adds_a_penalty_is_left_to_the_general_engine() -> None:
    plain, penalised = trainer("mf"), trainer("mf", lambda_item=0.1)
    assert fits(plain.batches, plain.model, plain.rows, "softmax")  # type: ignore[arg-type]
    assert not fits(penalised.batches, penalised.model, penalised.rows, "softmax")  # type: ignore[arg-type]
