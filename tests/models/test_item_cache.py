from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from gmlfm import Dataset, Recommender
from gmlfm.models import item_cache
from gmlfm.models.fm import FM
from gmlfm.models.gradient import GradientModel
from gmlfm.models.pairwise import PairwiseModel
from gmlfm.models.popularity import Popularity
from gmlfm.models.scoring import RowScorer
from gmlfm.retrieval import best_items
from tests.contracts.checkerboard import checkerboard

QUICK: dict[str, Any] = {"epochs": 1, "threads": 1, "k": 8, "v_scale": 0.5}


@pytest.fixture(scope="module")
def board() -> Dataset:
    return checkerboard()


@pytest.mark.parametrize("options", [{}, {"distance": "cosine"}, {"weight": False}, {"distance": "manhattan"}])
def test_what_is_kept_of_the_items_gives_the_pairs(board: Dataset, options: dict[str, Any]) -> None:
    model = Recommender("gml-fm-dnn", **QUICK, **options).fit(board).fitted.model
    assert isinstance(model, PairwiseModel)
    with torch.no_grad():
        weight, distance = model.pair_parts(model.transform_rows(model.table[:9]), model.transform_rows(model.table[9:]))
        assert distance is not None
        pairs = model.pair_table(model.transform_rows(model.table[:9]), model.item_cache(model.table[9:]))
    torch.testing.assert_close(pairs, weight * distance, rtol=2e-5, atol=2e-5)


def test_the_items_named_last_are_kept_and_other_items_are_not_confused_with_them(board: Dataset) -> None:
    run = Recommender("gml-fm-unit", **QUICK).fit(board).fitted
    assert isinstance(run.model, GradientModel)
    cache, users = run.model.scorer._item_cache, np.arange(3, dtype=np.int32)
    every_item = run.ranker.score_all(users, board.seen_items)
    chosen = cache._last
    assert chosen is not None
    run.ranker.score_all(users[:1], board.seen_items)
    assert cache._last is chosen
    reordered = board.seen_items[::-1].copy()
    np.testing.assert_array_equal(run.ranker.score_all(users, reordered), every_item[:, ::-1])
    reordered[:] = board.seen_items  # the caller's array is not kept, its items are
    np.testing.assert_array_equal(run.ranker.score_all(users, reordered), every_item)


def test_the_item_side_holds_at_most_three_times_its_embeddings() -> None:
    data = many_items(5_000)
    run = Recommender("gml-fm", **{**QUICK, "k": 64}).fit(data).fitted
    users = np.arange(3, dtype=np.int32)
    for chosen in (users[:1], users):
        best_items(run.ranker.score_all(chosen, data.seen_items), data.seen_items, 10)
    assert isinstance(run.model, GradientModel)
    scorer = run.model.scorer
    embeddings = scorer._item_cache.n_rows * scorer._table.shape[1] * 4
    assert embeddings > 0.9 * scorer._table.nbytes  # or the table below would say little of the items
    sizes = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors_of(scorer)}
    assert scorer._table.nbytes in sizes.values()
    assert sum(sizes.values()) <= 3 * embeddings


def tensors_of(scorer: RowScorer) -> list[torch.Tensor]:
    """Every tensor that a scorer reaches, its table too."""
    tensors, seen, queue = [], set[int](), [scorer.__dict__]
    while queue:
        value: Any = queue.pop()
        if id(value) in seen or isinstance(value, type):
            continue
        seen.add(id(value))
        if isinstance(value, torch.Tensor):
            tensors.append(value)
        elif isinstance(value, dict):
            queue += value.values()
        elif isinstance(value, list | tuple):
            queue += value
        elif hasattr(value, "__dict__"):
            queue.append(value.__dict__)
    return tensors


def many_items(n: int) -> Dataset:
    """n items of five fields, each bought once, and a few users."""
    rng = np.random.default_rng(0)
    names = [f"i{number}" for number in range(n)]
    fields = {f"f{number}": rng.integers(0, 20, n).astype(str) for number in range(5)}
    bought = {"user": rng.integers(0, 50, n).astype(str), "item": names}
    return Dataset.from_tables(pl.DataFrame(bought), items=pl.DataFrame({"item": names, **fields}))


@pytest.mark.parametrize("model", ["fm", "gml-fm", "nfm", "mf"])
@pytest.mark.parametrize("n_users", [2, 9])
def test_scores_are_the_same_in_memory_that_is_given(
    board: Dataset, model: str, n_users: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All items, most of them and a few, in tiles of a few columns."""
    monkeypatch.setattr(item_cache, "_NUMBERS_PER_TILE", 5 * n_users)
    run = Recommender(model, **QUICK).fit(board).fitted
    side = run.ranker.user_side(np.arange(n_users))
    assert isinstance(run.model, GradientModel)
    for items in (np.arange(len(board.items)), np.arange(1, len(board.items)), np.array([3, 4, 11])):
        out = np.full((n_users, len(items)), np.nan, np.float32)
        assert run.model.score_all(side, items.astype(np.int32), out) is out
        np.testing.assert_allclose(
            out, run.model.score_pairs(side, np.tile(items, (n_users, 1)).astype(np.int32)), rtol=1e-4, atol=1e-5
        )


def test_a_model_that_ranks_in_its_own_way_is_not_asked_by_threads() -> None:
    class Own(FM):
        def score_all(self, users: Any, items: Any) -> Any:  # type: ignore[override]
            raise NotImplementedError

    assert FM.scores_in_threads
    assert not Own.scores_in_threads
    assert not Popularity.scores_in_threads
