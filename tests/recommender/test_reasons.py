from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from gmlfm import Dataset, Recommender
from gmlfm.data.attributes import AttributeTable
from gmlfm.errors import DataError, OptionError
from gmlfm.recommender.reasons import explain_user_side
from gmlfm.recommender.user_side import known_user_side
from gmlfm.retrieval import Scorer
from tests.contracts.checkerboard import checkerboard

PAIRWISE = ["gml-fm", "gml-fm-md", "gml-fm-dnn", "fm", "transfm", "mf", "pmf", "bpr-mf", "ngcf"]
QUICK: dict[str, Any] = {"epochs": 2, "threads": 1, "k": 8, "v_scale": 0.3, "lr": 0.02}


@pytest.fixture(scope="module")
def board() -> Dataset:
    return checkerboard()


@pytest.mark.parametrize("name", PAIRWISE)
def test_terms_sum_to_the_score(name: str, board: Dataset) -> None:
    recommender = Recommender(name, **QUICK).fit(board)
    rng = np.random.default_rng(0)
    pairs = [(f"u{user}", f"i{item}") for user, item in zip(rng.integers(0, 40, 1000), rng.integers(0, 42, 1000), strict=True)]
    scores = recommender.predict(pairs)["score"].to_list()
    found = [recommender.explain(*pair).score for pair in pairs]
    np.testing.assert_allclose(found, scores, rtol=1e-4, atol=1e-5)


def test_ratings_are_explained_in_their_own_unit(board: Dataset) -> None:
    recommender = Recommender("fm", "rating", **QUICK).fit(board, "random")
    explained = recommender.explain("u1", "i1")
    assert explained.score == pytest.approx(recommender.predict([("u1", "i1")])["score"][0], rel=1e-5)
    assert explained.terms[0].kind == "global"
    assert 1 < explained.terms[0].value < 5


@pytest.mark.parametrize("name", ["gml-fm", "fm", "transfm"])
def test_taking_an_attribute_away_changes_the_score_by_its_terms(name: str, board: Dataset) -> None:
    """The row is scored again without it, the others' x held."""
    recommender = Recommender(name, **QUICK).fit(board)
    fitted, scorer = recommender.fitted, recommender.fitted.scores
    assert isinstance(scorer, Scorer)
    user_side = known_user_side(fitted, np.array([3]), None)
    whole = explain_user_side(fitted, user_side, 7)
    for column in range(user_side.ids.shape[1]):
        values = np.array(user_side.values)
        values[0, column] = 0.0
        without = scorer.score_all_for(AttributeTable(user_side.ids, values), np.array([7], np.int32))[0, 0]
        part, field, value = fitted.encoder.attribute_names(user_side.ids[:, column]).row(0)
        shown = f"{part if part == field else f'{part}.{field}'} = {value}"
        expected = sum(term.value for term in whole.terms if shown in term.attributes)
        assert whole.score - float(without) == pytest.approx(expected, abs=2e-5)


def test_a_pair_is_weight_times_distance(board: Dataset) -> None:
    explained = Recommender("gml-fm", **QUICK).fit(board).explain("u1", "i1")
    pairs = [term for term in explained.terms if term.kind == "pair"]
    assert len(pairs) == 7 * 6 // 2  # user, team; item, colour, price, two tags
    for term in pairs:
        assert term.weight is not None
        assert term.distance is not None
        assert 0 <= term.distance <= 4.0001  # unit length bounds it
    grouped = explained.by_fields()
    assert sum(grouped.values()) == pytest.approx(explained.score)
    assert list(grouped.values()) == sorted(grouped.values(), key=abs, reverse=True)


def test_contrast_tells_what_sets_an_item_apart(board: Dataset) -> None:
    recommender = Recommender("gml-fm", **QUICK).fit(board)
    apart = recommender.contrast("u1", "i1", against="i2")
    scores = recommender.predict([("u1", "i1"), ("u1", "i2")])["score"].to_list()
    assert sum(apart.values()) == pytest.approx(scores[0] - scores[1], abs=1e-5)
    assert apart[("user", "user.team")] == pytest.approx(0.0, abs=1e-9)  # the user is the same
    mean = recommender.contrast("u1", "i1")
    whole = recommender.predict([("u1", f"i{item}") for item in range(40)])["score"].mean()
    assert sum(mean.values()) == pytest.approx(scores[0] - float(whole), abs=1e-5)  # type: ignore[arg-type]


def test_models_that_do_not_decompose_say_so(board: Dataset) -> None:
    for name in ("nfm", "item-knn"):
        settings = {"epochs": 1, "k": 4} if name == "nfm" else {}
        recommender = Recommender(name, **settings).fit(board)
        with pytest.raises(OptionError, match=f"not available for '{name}'"):
            recommender.explain("u1", "i1")
    with pytest.raises(DataError, match="is not in the catalogue"):
        Recommender("fm", **QUICK).fit(board).explain("u1", "nothing")


@pytest.mark.parametrize("name", ["gml-fm", "fm", "transfm", "mf"])
def test_neighbours_are_alike(name: str, board: Dataset) -> None:
    recommender = Recommender(name, k=8, threads=1, lr=0.02).fit(board)
    near = recommender.similar_items("i4", 15)
    assert near["rank"].to_list() == list(range(1, 16))
    assert near["distance"].is_sorted()
    assert "i4" not in near["item"].to_list()
    same = sum(int(one[1:]) % 2 == 0 for one in near["item"])
    assert same >= 13
    people = recommender.similar_users("u3", 10)
    assert sum(int(one[1:]) % 2 == 1 for one in people["user"]) >= 8
    with pytest.raises(DataError, match="is unknown"):
        recommender.similar_users("nobody")
    with pytest.raises(OptionError, match="n is 0"):
        recommender.similar_items("i4", 0)


def test_the_fields_that_decide_carry_the_score(board: Dataset) -> None:
    table = Recommender("gml-fm", k=8, threads=1, lr=0.02).fit(board).field_pairs()
    assert table.columns == ["fields", "spread", "mean"]
    top = table.head(8)["fields"].to_list()
    assert any("team" in one and ("colour" in one or "tags" in one) for one in top), top


def test_directions_are_those_of_m(board: Dataset) -> None:
    recommender = Recommender("gml-fm-md", **QUICK).fit(board)
    table = recommender.directions(2)
    matrix = recommender.fitted.weights["dense.transform.matrix"].double()
    values = torch.linalg.eigvalsh(matrix.T @ matrix)
    assert table.filter(pl.col("direction") == 1)["share"][0] == pytest.approx(float(values[-1] / values.sum()))
    assert table.height == 10
    with pytest.raises(OptionError, match="gml-fm-md has"):
        Recommender("gml-fm", **QUICK).fit(board).directions()
