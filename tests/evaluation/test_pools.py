from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gmlfm.errors import DataError
from gmlfm.evaluation import pools as pools_module
from gmlfm.evaluation.pools import NO_POOL, SINGLE_UNIT, CandidateSampler, ItemPools, item_pools


def flags(*values: int) -> np.ndarray:
    return np.array(values, bool)


def test_pools_of_ordinary_items_and_by_kind() -> None:
    seen = flags(1, 0, 1)
    assert item_pools(seen).pool.tolist() == [0, NO_POOL, 0]
    assert item_pools(seen, kind=np.array([2, 1, 0], np.int8)).pool.tolist() == [2, NO_POOL, 0]
    assert item_pools(seen).items.tolist() == [0, 2]
    assert item_pools(seen, single_unit=flags(0, 0, 0), has_row_before=flags(1, 1, 1)).pool.tolist() == [0, NO_POOL, 0]


def test_items_that_sell_once_are_a_pool_of_their_own() -> None:
    seen, single, before = flags(1, 1, 1, 0, 1), flags(1, 1, 0, 1, 0), flags(1, 0, 1, 0, 0)
    untimed = item_pools(seen, single_unit=single, has_row_before=before)
    assert untimed.pool.tolist() == [NO_POOL, SINGLE_UNIT, 0, NO_POOL, 0]
    start, end = np.zeros(5, np.int64), np.ones(5, np.int64)
    timed = item_pools(seen, single_unit=single, has_row_before=before, interval=(start, end))
    assert timed.pool.tolist() == [SINGLE_UNIT, SINGLE_UNIT, 0, SINGLE_UNIT, 0]
    assert timed.interval == (start, end)


def test_a_target_without_a_pool_is_refused() -> None:
    with pytest.raises(DataError, match="a tested item is not among the candidates"):
        item_pools(flags(1, 0)).of(np.array([0, 1]))


@st.composite
def worlds(draw: st.DrawFn, timed: bool) -> tuple[ItemPools, np.ndarray, np.ndarray, np.ndarray]:
    """Pools of up to 25 items, positives of 3 users as pairs, and a time for each pair; targets are the positives with a pool."""
    n = draw(st.integers(3, 25))
    pool = np.array(draw(st.lists(st.sampled_from([NO_POOL, 0, SINGLE_UNIT]), min_size=n, max_size=n)), np.int8)
    pairs = draw(st.lists(st.tuples(st.integers(0, 2), st.integers(0, n - 1)), min_size=1, max_size=20))
    users, items = np.array(pairs, np.int32).T
    times = np.array(draw(st.lists(st.integers(0, 9), min_size=len(pairs), max_size=len(pairs))), np.int64)
    pool[items[0]] = 0
    if not timed:
        return ItemPools(pool), users, items, times
    start = np.array(draw(st.lists(st.integers(-1, 9), min_size=n, max_size=n)), np.int64)
    length = np.array(draw(st.lists(st.integers(0, 9), min_size=n, max_size=n)), np.int64)
    return ItemPools(pool, (start, start + length)), users, items, times


def slow_candidates(pools: ItemPools, users: np.ndarray, items: np.ndarray, row: int, times: np.ndarray) -> set[int]:
    """What the target of a row is ranked among, itself not included: item after item."""
    positives = {int(item) for user, item in zip(users, items, strict=True) if user == users[row]}
    chosen = set()
    for item in range(len(pools.pool)):
        in_pool = pools.pool[item] == pools.pool[items[row]]
        is_available = pools.interval is None or pools.interval[0][item] <= times[row] <= pools.interval[1][item]
        if in_pool and is_available and item not in positives:
            chosen.add(item)
    return chosen


@pytest.mark.parametrize("timed", [False, True])
def test_candidates_are_counted_and_drawn_as_item_after_item(timed: bool) -> None:
    @given(worlds(timed), st.integers(1, 6), st.integers(0, 9), st.sampled_from([2, 512]))
    def check(world: tuple[ItemPools, np.ndarray, np.ndarray, np.ndarray], n: int, seed: int, rows_per_block: int) -> None:
        pools, users, items, times = world
        tested = np.flatnonzero(pools.pool[items] != NO_POOL)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pools_module, "_ROWS_PER_BLOCK", rows_per_block)
            patch.setattr(pools_module, "_PAIRS_PER_BLOCK", rows_per_block)
            sampler = CandidateSampler(pools, users, items, 3)
            counts = sampler.counts(users[tested], items[tested], times[tested])
            drawn = sampler.draw(users[tested], items[tested], times[tested], n, np.random.default_rng(seed))
        for place, row in enumerate(tested):
            expected = slow_candidates(pools, users, items, int(row), times)
            assert counts[place] == len(expected) + 1
            chosen = drawn[place][drawn[place] >= 0].tolist()
            assert len(set(chosen)) == len(chosen) == min(n, len(expected))
            assert set(chosen) <= expected
            assert (drawn[place][len(chosen) :] == -1).all()

    check()


@pytest.mark.parametrize("timed", [False, True])
def test_every_candidate_is_drawn_as_often(timed: bool) -> None:
    """One row, drawn 20,000 times, 5 of 40 candidates: each stands in an eighth of the lists (5 sigma: .0117)."""
    n_items, n_draws = 60, 20_000
    start = np.where(np.arange(n_items) < 50, 0, 5).astype(np.int64)
    pools = ItemPools(np.zeros(n_items, np.int8), (start, start + 2)) if timed else ItemPools(np.zeros(n_items, np.int8))
    n_positives = 10 if timed else 20
    excluded = np.arange(n_positives, dtype=np.int32)
    sampler = CandidateSampler(pools, np.zeros(n_positives, np.int32), excluded, 1)
    users, targets, times = np.zeros(n_draws, np.int32), np.zeros(n_draws, np.int32), np.ones(n_draws, np.int64)
    drawn = sampler.draw(users, targets, times, 5, np.random.default_rng(0))
    shares = np.bincount(drawn.ravel(), minlength=n_items) / n_draws
    is_candidate = np.isin(np.arange(n_items), np.arange(10, 50) if timed else np.arange(20, 60))
    assert (shares[~is_candidate] == 0).all()
    np.testing.assert_allclose(shares[is_candidate], 0.125, atol=5 * np.sqrt(0.125 * 0.875 / n_draws))


def test_the_positives_of_some_users() -> None:
    pools = ItemPools(np.zeros(6, np.int8))
    sampler = CandidateSampler(pools, np.array([1, 0, 1, 1], np.int32), np.array([4, 2, 0, 4], np.int32), 3)
    places, items = sampler.excluded_of(np.array([1, 2, 0, 1], np.int32))
    assert list(zip(places.tolist(), items.tolist(), strict=True)) == [(0, 0), (0, 4), (2, 2), (3, 0), (3, 4)]
