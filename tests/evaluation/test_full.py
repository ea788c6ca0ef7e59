from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gmlfm import Recommender
from gmlfm.errors import DataError
from gmlfm.evaluation import full
from gmlfm.evaluation.candidates import Candidates, Pairs
from gmlfm.evaluation.full import rank_all
from gmlfm.evaluation.metrics import places
from gmlfm.evaluation.pools import NO_POOL, SINGLE_UNIT, ItemPools
from gmlfm.retrieval import best_items
from tests.data.arbitrary import random_plain


class Matrix:
    """Scores from a matrix (users, items)."""

    def __init__(self, matrix: Any) -> None:
        self.matrix = np.asarray(matrix, np.float32)

    def score_pairs(self, users: Any, items: Any, rows: Any = None) -> Any:
        return self.matrix[users[:, None], items]

    def score_all(self, users: Any, items: Any, rows: Any = None) -> Any:
        return self.matrix[np.ix_(users, items)]


class Threaded(Matrix):
    """May be asked by several threads, each with memory of its own."""

    scores_in_threads = True

    def score_into(self, users: Any, items: Any, rows: Any, out: Any) -> Any:
        out[:] = self.score_all(users, items, rows)
        return out


def slow_ranks(ranker: Matrix, candidates: Candidates, n: int) -> tuple[Any, Any, Any]:
    """All scores of a row, with -inf for what is no candidate; the lists by best_items."""
    items, pools = candidates.pools.items, candidates.pools
    positives = set(zip(candidates.excluded.users.tolist(), candidates.excluded.items.tolist(), strict=True))
    better, tied, lists = [], [], []
    for index, (user, target) in enumerate(zip(candidates.users.tolist(), candidates.targets.tolist(), strict=True)):
        time = None if candidates.times is None else candidates.times[index]
        is_candidate = np.array(
            [
                pools.pool[item] == pools.pool[target]
                and (time is None or bool(pools.can_be_had(np.array([item]), np.array([time]))[0]))
                and (user, item) not in positives
                for item in items.tolist()
            ]
        )
        scores = ranker.matrix[user, items]
        others = np.where(is_candidate & (items != target), scores, np.float32(-np.inf))
        is_counted = is_candidate & (items != target)
        ranks = places(ranker.matrix[user, [target]], others[is_counted][None])
        better.append(int(ranks.better[0]))
        tied.append(int(ranks.tied[0]))
        listed = np.where(is_counted | (items == target), scores, np.float32(-np.inf))[None]
        lists.append(best_items(listed.copy(), items, n).items[0])
    return np.array(better), np.array(tied), np.array(lists)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Candidates, Matrix]:
    """Random pools, intervals, positives and scores with ties and -inf."""
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    data = random_plain(5, 30, 60, seed % 1000)
    pool = rng.choice(np.array([NO_POOL, 0, 1, SINGLE_UNIT], np.int8), len(data.items))
    rows = np.flatnonzero(pool[data.item_numbers] != NO_POOL)[: draw(st.integers(1, 20))]
    if len(rows) == 0:
        pool[data.item_numbers[0]], rows = 0, np.array([0])
    interval, times = None, None
    if draw(st.booleans()):
        start = rng.integers(0, 6, len(data.items))
        interval, times = (start, np.where(rng.random(len(start)) < 0.3, 2**62, start + 2)), rng.integers(0, 6, len(rows))
    more = Pairs(rng.integers(0, len(data.users), 30).astype(np.int32), rng.integers(0, len(data.items), 30).astype(np.int32))
    known = Pairs(
        *(np.concatenate(pair) for pair in ((data.user_numbers[rows], more.users), (data.item_numbers[rows], more.items)))
    )
    scores = rng.choice([-np.inf, 0.0, 1.0, 2.0], (len(data.users), len(data.items)))
    if draw(st.booleans()):
        scores = rng.normal(size=scores.shape)
    return Candidates(data, rows, ItemPools(pool, interval), known, times), Matrix(scores)


@given(worlds(), st.integers(1, 12), st.sampled_from([1, 50, 24_000_000]), st.sampled_from([1, 2]), st.booleans())
def test_ranks_and_lists_are_those_of_sorted_scores(
    world: Any, n: int, scores_per_block: int, n_threads: int, in_threads: bool
) -> None:
    candidates, ranker = world
    ranker = Threaded(ranker.matrix) if in_threads else ranker
    n_threads_before = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(full, "_SCORES_PER_BLOCK", scores_per_block)
        patch.setattr(full, "_FEWEST_SCORES_PER_THREAD", 1)
        torch.set_num_threads(n_threads)
        try:
            ranks, lists = rank_all(ranker, candidates, n)
            assert torch.get_num_threads() == n_threads
        finally:
            torch.set_num_threads(n_threads_before)
    better, tied, expected = slow_ranks(ranker, candidates, n)
    assert ranks.better.tolist() == better.tolist()
    assert ranks.tied.tolist() == tied.tolist()
    assert lists.tolist() == expected.tolist()


def test_progress_is_reported_by_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    data = random_plain(12, 40, 150)
    candidates = Candidates.ordinary(data, np.arange(10))
    monkeypatch.setattr(full, "_SCORES_PER_BLOCK", 4 * len(data.seen_items))
    heard: list[tuple[int, int]] = []
    rank_all(Matrix(np.zeros((12, len(data.items)))), candidates, 3, lambda done, total: heard.append((done, total)))
    assert heard == [(4, 10), (8, 10), (10, 10)]


def test_items_that_no_row_of_a_block_can_have_are_not_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    """One row a block; each item can be had at one moment alone, but for the target."""
    data = random_plain(12, 40, 150)
    rows = np.arange(10)
    moments = np.arange(len(data.items)) % 5
    candidates = Candidates(
        data,
        rows,
        ItemPools(np.zeros(len(data.items), np.int8), (moments, moments)),
        Pairs(data.user_numbers, data.item_numbers),
        np.full(10, 3, np.int64),
    )
    monkeypatch.setattr(full, "_SCORES_PER_BLOCK", 1)
    named: list[list[int]] = []

    class Recorded(Matrix):
        def score_all(self, users: Any, items: Any, rows: Any = None) -> Any:
            named.append(items.tolist())
            return super().score_all(users, items, rows)

    rank_all(Recorded(np.zeros((12, len(data.items)))), candidates, 3)
    live = set(np.flatnonzero(moments == 3).tolist())
    assert named == [sorted(live | {int(data.item_numbers[row])}) for row in rows]


def test_a_score_that_is_no_number_is_refused() -> None:
    data = random_plain(12, 40, 150)
    scores = np.zeros((len(data.users), len(data.items)), np.float32)
    scores[:, data.seen_items[3]] = np.nan
    with pytest.raises(DataError, match="NaN"):
        rank_all(Matrix(scores), Candidates.ordinary(data, np.arange(10)), 3)


@pytest.mark.parametrize("in_threads", [False, True])
def test_an_error_while_scoring_is_the_caller_s(in_threads: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    data = random_plain(12, 40, 150)
    monkeypatch.setattr(full, "_SCORES_PER_BLOCK", 2 * len(data.seen_items))

    class Broken(Threaded):
        scores_in_threads = in_threads

        def score_all(self, users: Any, items: Any, rows: Any = None) -> Any:
            if 5 in rows:
                raise DataError("broken at row 5")
            return super().score_all(users, items, rows)

    n_threads_before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with pytest.raises(DataError, match="broken at row 5"):
            rank_all(Broken(np.zeros((12, len(data.items)))), Candidates.ordinary(data, np.arange(10)), 3)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(n_threads_before)


@pytest.mark.parametrize("model", ["fm", "gml-fm", "gml-fm-md", "transfm", "mf"])
def test_models_score_the_same_in_threads_of_their_own(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small blocks over changing items, two threads: what a model keeps between calls must not mix."""
    data = random_plain(60, 400, 3000)
    run = Recommender(model, k=4, epochs=0, v_scale=0.3, threads=1).fit(data, "none").fitted
    rng = np.random.default_rng(0)
    start = rng.integers(0, 50, len(data.items))
    pools = ItemPools(np.zeros(len(data.items), np.int8), (start, start + 20))
    rows = np.arange(300)
    candidates = Candidates(data, rows, pools, Pairs(data.user_numbers, data.item_numbers), rng.integers(0, 60, 300))
    monkeypatch.setattr(full, "_SCORES_PER_BLOCK", 8 * len(data.items))
    assert run.ranker.scores_in_threads
    expected, expected_lists = rank_all(run.ranker, candidates, 5)
    n_threads_before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        ranks, lists = rank_all(run.ranker, candidates, 5)
    finally:
        torch.set_num_threads(n_threads_before)
    # Products of other widths differ by rounding, which may turn two scores that are next to each other.
    assert np.mean(ranks.better == expected.better) > 0.98
    assert np.mean(lists == expected_lists) > 0.98
