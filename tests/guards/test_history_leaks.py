"""No row learns or is scored from itself or from what comes later: the future is permuted, and a leak is planted to be caught."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest

from gmlfm import Dataset, Recommender
from gmlfm.data.histories import Histories
from gmlfm.fitting.fit import make_plan
from gmlfm.retrieval import ModelRanker
from gmlfm.training.engines.history import HistoryEngine
from gmlfm.training.row_trainer import RowTrainer
from gmlfm.training.sampling.history_batches import HistoryBatches
from gmlfm.training.settings import Settings
from tests.models.history_world import N_ITEMS, QUICK, history_data

SETTINGS: dict[str, Any] = {**QUICK, "batch_size": 1, "piece": 1, "v_scale": 0.4, "cold_start_rate": 0.0, "n_negatives": "all"}
NOW = 145  # rows later than this are the future


def future_of(data: Dataset) -> npt.NDArray[np.bool_]:
    return data.interactions["time"].to_numpy() > NOW


def permuted(data: Dataset, seed: int) -> Dataset:
    """The same, but which of their later items a user chose when: all counts stay, and with them the encoder."""
    items, rng, is_future = data.item_numbers.copy(), np.random.default_rng(seed), future_of(data)
    for user in np.unique(data.user_numbers):
        rows = np.flatnonzero(is_future & (data.user_numbers == user))
        items[rows] = items[np.roll(rng.permutation(rows), 1)] if len(rows) > 1 else items[rows]
    return replace(data, interactions=data.interactions.with_columns(pl.Series("item", items, pl.Int32())))


def losses_and_scores(data: Dataset, model_name: str, **changes: Any) -> tuple[dict[int, float], npt.NDArray[np.float32]]:
    """By training row its loss, and the scores of all rows before the future, by weights that nothing was learned by."""
    plan: Any = make_plan(data, Settings.make(model_name, "topn", {**SETTINGS, **changes}), "none", device="cpu")
    inputs = plan.selection_inputs()
    model: Any = plan.settings.build(inputs.layout)
    model.attach(inputs)
    fields = inputs.layout.field_of_row()
    trainer = RowTrainer(model, inputs.layout.n_rows, plan.settings.training, inputs.batches(), "cpu", fields)
    batches, engine = trainer.batches, trainer.engine
    assert isinstance(batches, HistoryBatches)
    assert isinstance(engine, HistoryEngine)
    rng = np.random.default_rng(0)
    losses = {}
    for place in range(len(batches.rows)):
        batch = batches._batch(np.array([place]), np.array([place + 1]), rng, (5, place))
        drawn = np.random.default_rng(batch.seed)
        step = engine._shared(batch, drawn, hides=False) if batch.negatives is None else engine._grouped(batch, drawn)
        losses[int(batches.rows[place])] = float(step.loss.detach())
    rows = np.flatnonzero(~future_of(data))
    ranker = ModelRanker(model, inputs.encoded, histories=Histories.of(data))
    return losses, ranker.score_all(data.user_numbers[rows], np.arange(N_ITEMS, dtype=np.int32), rows)


CASES = [("fm", {}), ("gml-fm", {}), ("fm", {"loss": "bpr", "n_negatives": 2}), ("nfm", {"n_negatives": 2})]


@pytest.mark.parametrize(("model", "changes"), CASES)
@pytest.mark.parametrize("ties", ["strict", "file", "shuffle"])
def test_another_future_moves_no_earlier_loss_and_no_earlier_score(model: str, changes: dict[str, Any], ties: str) -> None:
    data = history_data(ties=ties)
    other, is_future = permuted(data, 1), future_of(data)
    assert (other.item_numbers != data.item_numbers).sum() > 20
    (losses, scores), (other_losses, other_scores) = (losses_and_scores(each, model, **changes) for each in (data, other))
    np.testing.assert_array_equal(scores, other_scores)
    earlier = [row for row in losses if not is_future[row]]
    later = [row for row in losses if is_future[row]]
    assert len(earlier) > 50
    if model == "fm" and not changes:  # negatives are drawn among what is none of the user's items, in any order
        assert [losses[row] for row in earlier] == [other_losses[row] for row in earlier]
    else:
        np.testing.assert_allclose([losses[row] for row in earlier], [other_losses[row] for row in earlier], rtol=1e-5)
    assert sum(losses[row] != pytest.approx(other_losses[row], rel=1e-4) for row in later) > len(later) // 3


@pytest.mark.parametrize("leak", ["next", "all"])
def test_a_planted_leak_is_caught(leak: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the row after a target, or everything, is in its history, the guard above fails."""
    stops = Histories.stops

    def leaking(histories: Histories, rows: Any) -> Any:
        ends = histories.starts[histories.row_users[rows] + 1]
        return ends if leak == "all" else np.minimum(stops(histories, rows) + 2, ends)

    monkeypatch.setattr(Histories, "stops", leaking)
    with pytest.raises(AssertionError):
        test_another_future_moves_no_earlier_loss_and_no_earlier_score("fm", {}, "strict")


def random_choices(seed: int) -> Dataset:
    """Nothing can be learned of what comes next."""
    rng = np.random.default_rng(seed)
    rows = [(f"u{user:03d}", f"i{item:02d}", time) for user in range(150) for time, item in enumerate(rng.permutation(60)[:12])]
    frame = pl.DataFrame(rows, schema=["user", "item", "time"], orient="row")
    return Dataset.from_tables(frame, schema={"interactions": {"user": "user", "item": "item", "time": "time"}})


def training_loss_of_one_epoch(data: Dataset) -> float:
    settings = {
        "k": 16,
        "epochs": 12,
        "lr": 0.02,
        "batch_size": 100,
        "history": "last",
        "history_dropout": 0.0,
        "threads": 1,
        "weight_decay": 0.0,
    }
    return float(Recommender("fm", **settings).fit(data).fitted.curve[-1]["loss"])


def test_random_choices_are_not_learned_but_with_a_planted_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    """The softmax over some 55 items that are left costs log 55 = 4.0 where nothing tells the next one."""
    honest = training_loss_of_one_epoch(random_choices(0))
    assert honest > 3.2
    stops = Histories.stops
    # The target is the last of its own history.
    monkeypatch.setattr(
        Histories, "stops", lambda histories, rows: np.minimum(stops(histories, rows) + 1, len(histories.items))
    )
    assert training_loss_of_one_epoch(random_choices(0)) < honest - 1.0
