"""A newcomer's row by the pairs of her id alone, against whole scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gmlfm import Recommender
from gmlfm.models import frozen
from gmlfm.retrieval import Scorer
from gmlfm.retrieval.folding import other_items
from tests.contracts.checkerboard import checkerboard

QUICK: dict[str, Any] = {"epochs": 2, "threads": 1, "k": 8, "v_scale": 0.3}


CASES: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in ("gml-fm-dnn", "gml-fm-md", "fm", "transfm", "mf", "pmf")),
    *(("gml-fm-dnn", one) for one in ({"distance": "cosine"}, {"distance": "manhattan"}, {"weight": False})),
]


@pytest.mark.parametrize(("name", "options"), CASES)
def test_pairs_fit_the_row_that_whole_scores_fit(name: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    recommender = Recommender(name, **QUICK, **options).fit(checkerboard())
    asked = {"attributes": {"team": "red"}, "history": ["i1", "i5", "i7"], "n": 30}
    found = recommender.recommend_for(**asked)
    monkeypatch.setattr(frozen, "by_pairs", frozen.by_whole_scores)
    slow = recommender.recommend_for(**asked)
    scores = [one.sort("item")["score"].to_list() for one in (found, slow)]
    np.testing.assert_allclose(*scores, rtol=1e-3, atol=1e-3)  # forty steps of rounding
    stranger = recommender.recommend_for({"team": "red"}, n=30).sort("item")["score"].to_list()
    assert np.abs(np.array(stranger[:20]) - np.array(scores[0][:20])).max() > 1e-2  # the history did count


def test_folding_leaves_the_model_as_it_was() -> None:
    scorer = (recommender := Recommender("gml-fm", **QUICK).fit(checkerboard())).fitted.scores
    assert isinstance(scorer, Scorer)
    before = {name: one.clone() for name, one in scorer.model.state_dict().items()}
    for one in scorer.model.parameters():
        one.grad = None
    recommender.recommend_for({}, history=["i1"])
    assert all(one.grad is None for one in scorer.model.parameters())
    assert all(one.equal(before[name]) for name, one in scorer.model.state_dict().items())


def test_others_are_those_not_named() -> None:
    found = other_items(500, np.array([3, 4, 400]))
    assert len(set(found)) == 200
    assert not {3, 4, 400} & set(found)
    assert sorted(other_items(5, np.array([1]))) == [0, 2, 3, 4]
