"""Every way of scoring a catalogue against pair after pair."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gmlfm import Dataset, Recommender
from gmlfm.models.base import Pairwise
from gmlfm.models.registry import MODELS
from gmlfm.retrieval import Scorer
from tests.contracts.checkerboard import N_USERS, checkerboard

PAIRWISE = ["gml-fm", "gml-fm-md", "gml-fm-dnn", "fm", "transfm", "mf", "pmf", "ngcf"]
QUICK: dict[str, Any] = {"epochs": 1, "threads": 1, "k": 8, "v_scale": 0.5}


@pytest.fixture(scope="module")
def board() -> Dataset:
    return checkerboard()


def fitted(board: Dataset, name: str, **more: Any) -> Scorer:
    scores = Recommender(name, **{**QUICK, **more}).fit(board).fitted.scores
    assert isinstance(scores, Scorer)
    return scores


def test_the_list_of_pairwise_models_is_whole() -> None:
    from gmlfm.data.attributes import FieldCode
    from gmlfm.models.base import Layout
    from gmlfm.training.settings import Settings

    layout = Layout((FieldCode("user", "user", "id", 1, 4), FieldCode("item", "item", "id", 7, 4)))
    trained = [name for name, info in MODELS.items() if info.make is not None]
    assert set(PAIRWISE) | {"bpr-mf"} == {
        name for name in trained if isinstance(Settings.make(name, "topn", {}).build(layout), Pairwise)
    }


@pytest.mark.parametrize("form", ["table", "vectors"])
@pytest.mark.parametrize("name", PAIRWISE)
def test_tables_and_vectors_give_what_pairs_give(board: Dataset, name: str, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scores = fitted(board, name)
    assert isinstance(scores.model, Pairwise)
    if form == "table" and scores.model.ids_only:
        pytest.skip("ids alone have no table of attributes")
    monkeypatch.setattr(Scorer, "_tables_are_cheaper", lambda self, model: form == "table")
    monkeypatch.setattr("gmlfm.retrieval.scorer._NUMBERS_A_BLOCK", 300)  # several blocks
    users = np.arange(N_USERS, dtype=np.int32)
    for items in (board.seen_items, np.arange(len(board.items), dtype=np.int32), np.array([7, 3, 41], np.int32)):
        by_pairs = scores.pairs(users, np.tile(items, (len(users), 1)))
        np.testing.assert_allclose(scores.everything(users, items), by_pairs, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("distance", ["manhattan", "euclidean", "chebyshev", "minkowski", "cosine"])
@pytest.mark.parametrize("weight", [True, False])
def test_any_distance_ranks_by_tables(board: Dataset, distance: str, weight: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gmlfm.models.gmlfm._NUMBERS_A_PIECE", 2_000)
    scores = fitted(board, "gml-fm-dnn", distance=distance, weight=weight, p=3.0)
    users, items = np.arange(N_USERS, dtype=np.int32), board.seen_items
    by_pairs = scores.pairs(users, np.tile(items, (len(users), 1)))
    np.testing.assert_allclose(scores.everything(users, items), by_pairs, rtol=2e-5, atol=2e-5)


def test_the_cheaper_form_is_chosen(board: Dataset) -> None:
    for name, by_table in (("gml-fm", True), ("fm", False)):
        scores = fitted(board, name, k=64)
        assert isinstance(scores.model, Pairwise)
        assert scores._tables_are_cheaper(scores.model) is by_table
