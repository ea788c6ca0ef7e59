"""Every way of scoring a catalogue against pair after pair."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from gmlfm import Dataset, Recommender
from gmlfm.models.base import PairwiseModel
from gmlfm.models.registry import MODELS
from gmlfm.retrieval import Scorer, best_items
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
        name for name in trained if isinstance(Settings.make(name, "topn", {}).build(layout), PairwiseModel)
    }


@pytest.mark.parametrize("form", ["table", "vectors"])
@pytest.mark.parametrize("name", PAIRWISE)
def test_tables_and_vectors_give_what_pairs_give(board: Dataset, name: str, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scores = fitted(board, name)
    assert isinstance(scores.model, PairwiseModel)
    if form == "table" and scores.model.ids_only:
        pytest.skip("ids alone have no table of attributes")
    monkeypatch.setattr(Scorer, "_tables_are_cheaper", lambda self, model: form == "table")
    monkeypatch.setattr("gmlfm.retrieval.scorer._NUMBERS_A_BLOCK", 300)  # several blocks
    users = np.arange(N_USERS, dtype=np.int32)
    for items in (board.seen_items, np.arange(len(board.items), dtype=np.int32), np.array([7, 3, 41], np.int32)):
        by_pairs = scores.score_pairs(users, np.tile(items, (len(users), 1)))
        np.testing.assert_allclose(scores.score_all(users, items), by_pairs, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("distance", ["manhattan", "euclidean", "chebyshev", "minkowski", "cosine"])
@pytest.mark.parametrize("weight", [True, False])
def test_any_distance_ranks_by_tables(board: Dataset, distance: str, weight: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gmlfm.models.gmlfm._NUMBERS_A_PIECE", 2_000)
    scores = fitted(board, "gml-fm-dnn", distance=distance, weight=weight, p=3.0)
    users, items = np.arange(N_USERS, dtype=np.int32), board.seen_items
    by_pairs = scores.score_pairs(users, np.tile(items, (len(users), 1)))
    np.testing.assert_allclose(scores.score_all(users, items), by_pairs, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("options", [{}, {"distance": "cosine"}, {"weight": False}, {"distance": "manhattan"}])
def test_what_is_kept_of_the_items_gives_the_pairs(board: Dataset, options: dict[str, Any]) -> None:
    scores = fitted(board, "gml-fm-dnn", **options)
    model = scores.model
    assert isinstance(model, PairwiseModel)
    table = scores._table
    with torch.no_grad():
        weight, distance = model.pair_parts(model.transform_rows(table[:9]), model.transform_rows(table[9:]))
        assert distance is not None
        found = model.pair_table(model.transform_rows(table[:9]), model.item_cache(table[9:]))
    torch.testing.assert_close(found, weight * distance, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("n_users", [1, N_USERS])
@pytest.mark.parametrize("name", ["gml-fm", "fm", "mf"])
def test_one_user_is_scored_as_many_are(board: Dataset, name: str, n_users: int) -> None:
    scores = fitted(board, name)
    users = np.arange(n_users, dtype=np.int32)
    for items in (np.arange(len(board.items), dtype=np.int32), np.array([7, 3, 41], np.int32), board.seen_items[1:]):
        by_pairs = scores.score_pairs(users, np.tile(items, (n_users, 1)))
        np.testing.assert_allclose(scores.score_all(users, items), by_pairs, rtol=2e-5, atol=2e-5)


def test_the_item_side_holds_at_most_three_times_its_embeddings() -> None:
    data = many_items(5_000)
    scores = fitted(data, "gml-fm", k=64)
    users = np.arange(3, dtype=np.int32)
    for one in (users[:1], users):
        best_items(scores.score_all(one, data.seen_items), data.seen_items, 10)
    side = scores._item_side
    embeddings = side.n_rows * scores._table.shape[1] * 4
    assert embeddings > 0.9 * scores._table.nbytes  # or the table below would say little of the items
    held = {one.untyped_storage().data_ptr(): one.untyped_storage().nbytes() for one in tensors_of(scores)}
    assert scores._table.nbytes in held.values()
    assert sum(held.values()) <= 3 * embeddings


def tensors_of(scores: Scorer) -> list[torch.Tensor]:
    """Every tensor that a scorer reaches, its table too."""
    found, seen, queue = [], set[int](), [scores.__dict__]
    while queue:
        one: Any = queue.pop()
        if id(one) in seen or isinstance(one, type):
            continue
        seen.add(id(one))
        if isinstance(one, torch.Tensor):
            found.append(one)
        elif isinstance(one, dict):
            queue += one.values()
        elif isinstance(one, list | tuple):
            queue += one
        elif hasattr(one, "__dict__"):
            queue.append(one.__dict__)
    return found


def many_items(n: int) -> Dataset:
    """n items of five fields, each bought once, and a few users."""
    rng = np.random.default_rng(0)
    names = [f"i{at}" for at in range(n)]
    fields = {f"f{at}": rng.integers(0, 20, n).astype(str) for at in range(5)}
    bought = {"user": rng.integers(0, 50, n).astype(str), "item": names}
    return Dataset.from_tables(pl.DataFrame(bought), items=pl.DataFrame({"item": names, **fields}))


def test_the_cheaper_form_is_chosen(board: Dataset) -> None:
    for name, by_table in (("gml-fm", True), ("fm", False)):
        scores = fitted(board, name, k=64)
        assert isinstance(scores.model, PairwiseModel)
        assert scores._tables_are_cheaper(scores.model) is by_table
