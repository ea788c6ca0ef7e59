"""A newcomer's row by the pairs of their id alone, against whole scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gmlfm import Dataset, Recommender
from gmlfm.models import frozen
from gmlfm.models.folding import other_items
from gmlfm.models.gradient import GradientModel
from tests.contracts.checkerboard import checkerboard

QUICK: dict[str, Any] = {"epochs": 2, "threads": 1, "k": 8, "v_scale": 0.3}
CASES: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in ("gml-fm-dnn", "gml-fm-md", "transfm", "mf", "pmf")),
    ("fm", {"history": "none"}),
    *(("gml-fm-dnn", options) for options in ({"distance": "cosine"}, {"distance": "manhattan"}, {"weight": False})),
]


@pytest.fixture(scope="module")
def board() -> Dataset:
    return checkerboard()


@pytest.mark.parametrize(("name", "options"), CASES)
def test_pairs_fit_the_row_that_whole_scores_fit(
    board: Dataset, name: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    recommender = Recommender(name, **QUICK, **options).fit(board)
    question = {"attributes": {"team": "red"}, "history": ["i1", "i5", "i7"], "n": 30}
    by_pairs = recommender.recommend_for(**question)
    calls: list[bool] = []

    def by_scores(model: Any, rows: Any, start: Any, users: Any, items: Any) -> frozen.RowScores:
        calls.append(True)
        return frozen.row_scores(model, rows, users, items)

    monkeypatch.setattr(frozen, "row_scores_by_pairs", by_scores)
    by_whole_scores = recommender.recommend_for(**question)
    assert calls
    scores = [table.sort("item")["score"].to_list() for table in (by_pairs, by_whole_scores)]
    np.testing.assert_allclose(*scores, rtol=1e-3, atol=1e-3)  # forty steps of rounding
    stranger = recommender.recommend_for({"team": "red"}, n=30).sort("item")["score"].to_list()
    assert np.abs(np.array(stranger[:20]) - np.array(scores[0][:20])).max() > 1e-2  # the history did count


def test_folding_leaves_the_model_as_it_was(board: Dataset) -> None:
    recommender = Recommender("gml-fm", **QUICK).fit(board)
    model = recommender.fitted.model
    assert isinstance(model, GradientModel)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for parameter in model.parameters():
        parameter.grad = None
    recommender.recommend_for({}, history=["i1"])
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(tensor.equal(before[name]) for name, tensor in model.state_dict().items())


def test_others_are_those_not_named() -> None:
    others = other_items(500, np.array([3, 4, 400]))
    assert len(set(others)) == 200
    assert not {3, 4, 400} & set(others)
    assert sorted(other_items(5, np.array([1]))) == [0, 2, 3, 4]
