from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from gmlfm import Dataset, Recommender
from gmlfm.data.histories import History
from gmlfm.data.prepared import PreparedData
from gmlfm.errors import DataError, OptionError
from gmlfm.evaluation.protocols import evaluate_held_out, protocol_for
from gmlfm.fitting import FittedRun
from gmlfm.models.base import ItemSide, UserSide
from gmlfm.recommender.evaluating import evaluate_predictions
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


class SlowRanker:
    """Scores of the data with other fields; histories are gathered row by row: the user's earlier rows that training has."""

    def __init__(self, run: FittedRun, data: Dataset) -> None:
        self.run, self.encoded = run, run.encoder.encode(data)
        self.model: Any = run.model.over(ItemSide(np.arange(len(data.items), dtype=np.int32), self.encoded.item))

    def user_side(self, users: npt.NDArray[np.int32], rows: npt.NDArray[np.int64]) -> UserSide:
        data, times = self.run.data, self.run.data.interactions["time"].to_list()
        visible = sorted((int(row) for row in self.run.split.train), key=lambda row: times[row])
        before = [
            [
                int(data.item_numbers[other])
                for other in visible
                if data.user_numbers[other] == user and times[other] < times[row]
            ]
            for user, row in zip(users, rows, strict=True)
        ]
        return UserSide(users, self.encoded.user_side(users, rows), History.of(before))

    def score_all(self, users: Any, items: Any, rows: Any = None) -> Any:
        return self.model.score_all(self.user_side(users, rows), items)

    def score_pairs(self, users: Any, items: Any, rows: Any = None) -> Any:
        return self.model.score_pairs(self.user_side(users, rows), items)


@pytest.mark.parametrize("task", ["topn", "rating"])
def test_a_history_is_that_before_the_validation_rows_and_is_shuffled_with_the_items(task: str, habits: Dataset) -> None:
    """The split is at random, so that test rows lie before validation rows, which may not see them."""
    run = Recommender("fm", task, history="last,recent,past", **WITH_HISTORY).fit(habits, "random").fitted

    def measured(data: Dataset) -> float:
        ranker = SlowRanker(run, data)
        if task == "topn":
            held_out = evaluate_held_out(ranker, data, run.split, "validation", protocol_for(data, run.split))
            return held_out.metrics["ndcg@10"]
        return -evaluate_predictions(run, ranker, data, run.split.validation).metrics["rmse"]

    table = field_importance(run, retrain=False, report=_silent)
    lost = {field: value for field, value in table.select("field", "shuffled").rows()}
    for part, name in (("items", "colour"), ("users", "age")):
        side = getattr(run.data, part)
        order = np.random.default_rng([0, 43]).permutation(len(side))
        fields = side.fields.with_columns(side.fields[name].gather(order).alias(name))
        changed: Any = {part: replace(side, fields=fields)}
        shuffled = measured(replace(run.data, **changed))
        assert lost[name] == pytest.approx(measured(run.data) - shuffled, abs=1e-6)
        assert lost[name] != 0.0
