"""Pools: which items a tested row's item is ranked among. From arrays by item alone, so that shards can use them as well.

A target is ranked among the items of its pool that can be had at the row's time and are none of the user's other positives.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from gmlfm.data.availability import Times
from gmlfm.errors import DataError
from gmlfm.training.sampling.negatives import NegativeSampler

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
NO_POOL = -1
SINGLE_UNIT = 100  # the pool of items that sell once; those of other items count from 0
_ROWS_PER_BLOCK = 512  # neighbours in time, whose candidates are mostly the same items
_PAIRS_PER_BLOCK = 4_000_000


@dataclass(frozen=True)
class ItemPools:
    """By item number: its pool, NO_POOL for an item that is no candidate; interval: from when until when it can be had."""

    pool: npt.NDArray[np.int8]
    interval: tuple[Times, Times] | None = None

    @cached_property
    def items(self) -> Ints:
        """The items of all pools."""
        return np.flatnonzero(self.pool != NO_POOL).astype(np.int32)

    def of(self, targets: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.int8]:
        """The pool of each target, which must have one."""
        pools: npt.NDArray[np.int8] = self.pool[targets]
        if (pools == NO_POOL).any():
            raise DataError("a tested item is not among the candidates.")
        return pools

    def can_be_had(self, items: npt.NDArray[np.integer[Any]], times: Times) -> Flags:
        """Whether each item can be had at the time beside it."""
        if self.interval is None:
            return np.ones(np.broadcast_shapes(items.shape, times.shape), bool)
        start, end = self.interval
        result: Flags = (start[items] <= times) & (times <= end[items])
        return result


def item_pools(
    is_seen: Flags,
    *,
    single_unit: Flags | None = None,
    has_row_before: Flags | None = None,
    interval: tuple[Times, Times] | None = None,
    kind: npt.NDArray[np.int8] | None = None,
) -> ItemPools:
    """Pools by item number. is_seen: occurs in the interactions, of any part; has_row_before: has a row before the tested part.

    Items that sell once (single_unit) are a pool of their own: those without a row before the part; or, where an interval
    says when an item can be had, all of the catalogue. The others are a pool too, or several by their kind (from 0).
    """
    others = np.zeros(len(is_seen), np.int8) if kind is None else kind
    if single_unit is None or not single_unit.any():
        return ItemPools(np.where(is_seen, others, NO_POOL).astype(np.int8))
    if interval is not None:
        return ItemPools(np.where(single_unit, SINGLE_UNIT, np.where(is_seen, others, NO_POOL)).astype(np.int8), interval)
    assert has_row_before is not None
    is_candidate = is_seen & ~(single_unit & has_row_before)
    return ItemPools(np.where(is_candidate, np.where(single_unit, SINGLE_UNIT, others), NO_POOL).astype(np.int8))


class CandidateSampler:
    """Counts and draws the candidates of tested rows. users, items: the positives, targets among them; none is drawn."""

    def __init__(self, pools: ItemPools, users: Ints, items: Ints, n_users: int) -> None:
        self.pools, self._users, self._items, self._n_users = pools, users, items, n_users
        self._untimed_samplers: dict[int, NegativeSampler] = {}

    def counts(self, users: Ints, targets: Ints, times: Times | None = None) -> Longs:
        """Among how many items each target is ranked, itself included. times: by row, where the pools have times."""
        result = np.empty(len(users), np.int64)
        for pool, members in self._by_pool(targets):
            if self.pools.interval is None:
                result[members] = self._untimed(pool).free(users[members]) + 1
            else:
                assert times is not None
                result[members] = self._timed_counts(pool, users[members], times[members])
        return result

    def draw(self, users: Ints, targets: Ints, times: Times | None, n: int, rng: np.random.Generator) -> Ints:
        """(N, n) distinct items beside each target; where there are fewer than n, all of them and then -1."""
        result = np.full((len(users), n), -1, np.int32)
        for pool, members in self._by_pool(targets):
            if self.pools.interval is None:
                result[members] = self._draw_untimed(pool, users[members], n, rng)
            else:
                assert times is not None
                result[members] = self._draw_timed(pool, users[members], times[members], n, rng)
        return result

    def excluded_of(self, users: Ints) -> tuple[Longs, Ints]:
        """Each user's positives: places in users, and the items beside them."""
        starts, lengths = self._starts[users], np.diff(self._starts)[users]
        places = np.repeat(np.arange(len(users)), lengths)
        offsets = np.arange(len(places)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return places, self._keys_items[np.repeat(starts, lengths) + offsets]

    def _by_pool(self, targets: Ints) -> Iterator[tuple[int, Longs]]:
        pools = self.pools.of(targets)
        for pool in np.unique(pools):
            yield int(pool), np.flatnonzero(pools == pool)

    def _members(self, pool: int) -> Ints:
        return np.flatnonzero(self.pools.pool == pool).astype(np.int32)

    @cached_property
    def _keys(self) -> Longs:
        """user x items + item of each positive, distinct and sorted."""
        keys = np.sort(self._users.astype(np.int64) * len(self.pools.pool) + self._items, kind="stable")
        return keys[np.diff(keys, prepend=-1) > 0]

    @cached_property
    def _keys_items(self) -> Ints:
        return (self._keys % len(self.pools.pool)).astype(np.int32)

    @cached_property
    def _starts(self) -> Longs:
        return np.searchsorted(self._keys, np.arange(self._n_users + 1) * len(self.pools.pool))

    def _is_excluded(self, users: Ints, items: Ints) -> Flags:
        keys = users.astype(np.int64) * len(self.pools.pool) + items
        places = np.minimum(np.searchsorted(self._keys, keys), max(len(self._keys) - 1, 0))
        return self._keys[places] == keys if len(self._keys) else np.zeros(keys.shape, bool)

    def _untimed(self, pool: int) -> NegativeSampler:
        if pool not in self._untimed_samplers:
            self._untimed_samplers[pool] = NegativeSampler(self._users, self._items, self._n_users, self._members(pool))
        return self._untimed_samplers[pool]

    def _draw_untimed(self, pool: int, users: Ints, n: int, rng: np.random.Generator) -> Ints:
        sampler = self._untimed(pool)
        is_short = sampler.free(users) < n
        result = np.full((len(users), n), -1, np.int32)
        result[~is_short] = sampler.draw_distinct(users[~is_short], n, rng)
        for row in np.flatnonzero(is_short):
            left = sampler.candidates[~self._is_excluded(np.full(len(sampler.candidates), users[row]), sampler.candidates)]
            result[row, : len(left)] = rng.permutation(left)
        return result

    def _timed_counts(self, pool: int, users: Ints, times: Times) -> Longs:
        """An item is there from its start to its end: as many as have started, less those that ended before."""
        assert self.pools.interval is not None
        start_of, end_of = self.pools.interval
        items = self._members(pool)
        started = np.searchsorted(np.sort(start_of[items]), times, side="right")
        ended = np.searchsorted(np.sort(end_of[items]), times, side="left")
        counts: Longs = (started - ended).astype(np.int64)
        lengths = np.cumsum(np.diff(self._starts)[users])
        for start, stop in _bounded(lengths, _PAIRS_PER_BLOCK):
            places, excluded = self.excluded_of(users[start:stop])
            is_gone = (self.pools.pool[excluded] == pool) & self.pools.can_be_had(excluded, times[start:stop][places])
            counts[start:stop] -= np.bincount(places[is_gone], minlength=stop - start)
        return counts + 1

    def _draw_timed(self, pool: int, users: Ints, times: Times, n: int, rng: np.random.Generator) -> Ints:
        """Some rows at a time, neighbours in time, so that most of the items they draw from can be had at each row."""
        assert self.pools.interval is not None
        start_of, end_of = self.pools.interval
        items, counts = self._members(pool), self._timed_counts(pool, users, times) - 1
        starts, ends = start_of[items], end_of[items]
        result = np.full((len(users), n), -1, np.int32)
        by_time = np.argsort(times, kind="stable")
        for first in range(0, len(users), _ROWS_PER_BLOCK):
            block = by_time[first : first + _ROWS_PER_BLOCK]
            live = items[(starts <= times[block[-1]]) & (ends >= times[block[0]])]
            # Where most draws would be refused, the candidates are listed instead.
            is_listed = (counts[block] < 2 * n) | (8 * counts[block] < len(live))
            for row in block[is_listed]:
                is_left = self.pools.can_be_had(live, times[row]) & ~self._is_excluded(np.full(len(live), users[row]), live)
                chosen = rng.permutation(live[is_left])[:n]
                result[row, : len(chosen)] = chosen
            rows = block[~is_listed]
            if len(rows):
                result[rows] = self._draw_live(users[rows], times[rows], live, n, rng)
        return result

    def _draw_live(self, users: Ints, times: Times, live: Ints, n: int, rng: np.random.Generator) -> Ints:
        """Draws that are refused, or repeat one of the same row, are drawn again."""
        result = live[rng.integers(0, len(live), (len(users), n))]
        pending = np.arange(len(users))
        while len(pending):
            drawn = result[pending]
            is_refused = self._is_excluded(users[pending][:, None], drawn) | ~self.pools.can_be_had(
                drawn, times[pending][:, None]
            )
            order = np.argsort(drawn, axis=1, kind="stable")
            ordered = np.take_along_axis(drawn, order, axis=1)
            repeats = np.zeros_like(is_refused)
            np.put_along_axis(repeats, order[:, 1:], ordered[:, 1:] == ordered[:, :-1], axis=1)
            rows, columns = np.nonzero(is_refused | repeats)
            result[pending[rows], columns] = live[rng.integers(0, len(live), len(rows))]
            pending = pending[np.unique(rows)]
        return result


def _bounded(ends: Longs, most: int) -> Iterator[tuple[int, int]]:
    """Ranges whose sums stay near `most`; ends: the running sums."""
    start = 0
    while start < len(ends):
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + most, side="right")))
        yield start, stop
        start = stop
