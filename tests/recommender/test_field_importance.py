from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest

from gmlfm import Dataset, Recommender
from gmlfm.data.prepared import PreparedData
from gmlfm.errors import DataError, OptionError
from gmlfm.models.base import ItemSide
from gmlfm.recommender import field_importance as field_importance_module
from gmlfm.recommender.field_importance import field_importance
from tests.recommender.conftest import WITH_HISTORY


def _silent(message: str) -> None: ...


def test_the_field_that_decides_matters_most(board: Dataset) -> None:
    run = Recommender("gml-fm", k=8, epochs=8, threads=1, lr=0.02).fit(board).fitted
    messages: list[str] = []
    table = field_importance(run, retrain=False, report=messages.append)
    assert table.columns == ["part", "field", "shuffled", "without"]
    assert {(row["part"], row["field"]) for row in table.to_dicts()} == {
        ("user", "team"),
        ("item", "colour"),
        ("item", "price"),
        ("item", "tags"),
    }
    assert table["without"].is_null().all()
    assert table["shuffled"].is_sorted(descending=True)
    lost = dict(zip(table["field"].to_list(), table["shuffled"].to_list(), strict=True))
    assert max(lost["team"], lost["colour"], lost["tags"]) > 0.05
    assert lost["price"] < max(lost["team"], lost["colour"], lost["tags"])
    assert [message.split(", ")[1] for message in messages] == [f"field {number} of 4" for number in (1, 2, 3, 4)]
    shuffled = {f"shuffling {part}.{field}" for part, field in table.select("part", "field").rows()}
    assert {message.split(", ")[0] for message in messages} == shuffled
    assert field_importance(run, retrain=False, report=_silent).equals(table)  # the shuffles are seeded, the run unchanged


def test_training_without_a_field_is_compared_on_the_same_validation_rows(board: Dataset) -> None:
    run = Recommender("fm", "rating", k=4, epochs=2, threads=1).fit(board, "random").fitted
    messages: list[str] = []
    table = field_importance(run, retrain=True, report=messages.append)
    assert table["without"].is_not_null().all()
    assert "training without user.team, field 1 of 4" in messages
    assert table["without"].abs().max() < 2  # type: ignore[operator]


def test_what_cannot_be_measured_is_one_sentence(board: Dataset, small_prepared: PreparedData) -> None:
    by_ids = Recommender("popularity").fit(board).fitted
    with pytest.raises(OptionError, match="'popularity' does not use attributes, so none matters to it"):
        field_importance(by_ids, retrain=False, report=_silent)
    without_validation = Recommender("fm", k=2, epochs=1, threads=1).fit(board, "none").fitted
    with pytest.raises(DataError, match="the split 'none' has no validation rows to measure on"):
        field_importance(without_validation, retrain=False, report=_silent)
    prepared = Recommender("fm", k=2, epochs=1, threads=1).fit(small_prepared).fitted
    with pytest.raises(OptionError, match="leave --retrain out, or train on the tables themselves"):
        field_importance(prepared, retrain=True, report=_silent)
    from_files = replace(without_validation, split=replace(without_validation.split, name="files"))
    with pytest.raises(OptionError, match="a run keeps the rows of a split from files, not the files"):
        field_importance(from_files, retrain=True, report=_silent)


@pytest.mark.parametrize("task", ["topn", "rating"])
def test_a_history_is_that_before_the_validation_rows_and_is_shuffled_with_the_items(task: str, habits: Dataset) -> None:
    """With all fields it is the validation that training saw; what a field is worth includes what histories say by it."""
    run = Recommender("fm", task, history="last,recent,past", **WITH_HISTORY).fit(habits).fitted
    table = field_importance(run, retrain=False, report=_silent)
    metric, sign = ("ndcg@10", 1.0) if task == "topn" else ("rmse", -1.0)
    ranker = run.ranker_of("validation")
    for part, name in (("item", "colour"), ("user", "age")):
        data = field_importance_module._with_side(
            run.data, part, field_importance_module._shuffled(field_importance_module._side(run.data, part), name, 0)
        )
        encoded = run.encoder.encode(data)
        items = ItemSide(np.arange(len(encoded.item), dtype=np.int32), encoded.item)
        users, rows = run.data.user_numbers[run.split.validation], run.split.validation
        side = replace(ranker.user_side(users, rows), attributes=encoded.user_side(users, rows))
        model: Any = run.model.over(items)
        targets = run.data.item_numbers[rows]
        if task == "rating":
            labels = run.data.interactions["label"].to_numpy()[rows]
            predicted = np.clip(model.score_pairs(side, targets[:, None])[:, 0], *run.limits)
            shuffled = float(np.sqrt(np.mean((predicted - labels) ** 2)))
        else:
            shuffled = _ndcg(model.score_all(side, run.data.seen_items.astype(np.int32)), targets, run.data.seen_items)
        lost = table.filter((pl.col("part") == part) & (pl.col("field") == name))["shuffled"][0]
        assert lost == pytest.approx(sign * (run.validation[metric] - shuffled), abs=1e-5)


def _ndcg(scores: npt.NDArray[np.float32], targets: npt.NDArray[np.int32], items: npt.NDArray[Any]) -> float:
    """Where users' earlier items are candidates: repeats are kept."""
    own = scores[np.arange(len(targets)), np.searchsorted(items, targets)]
    places = (scores > own[:, None]).sum(1)
    return float(np.mean(np.where(places < 10, 1.0 / np.log2(places + 2.0), 0.0)))
