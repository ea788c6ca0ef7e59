"""Negatives: items that a user did not choose, drawn without rejection and without a users x items matrix.

For each user the excluded items are cut out of the list of candidates; a uniform draw on what remains is mapped back by one
binary search in the excluded items. Memory: a few numbers an interaction.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import polars as pl

from gmlfm.data.availability import Times
from gmlfm.data.dataset import Dataset, Rows
from gmlfm.errors import DataError

Items = npt.NDArray[np.int32]
_MANY = 200_000  # draws at once, from which a compiled search pays


class Sampler(Protocol):
    """Draws the negatives of rows: of a user, at a time where that matters."""

    def draw(self, users: npt.NDArray[np.int32], n: int, rng: np.random.Generator, times: Times | None = None) -> Items:
        """(len(users), n) items, with replacement."""
        ...

    def check_rows(self, users: npt.NDArray[np.int32], times: Times | None = None) -> None:
        """Every row must leave an item to draw."""
        ...

    def draw_tables(self) -> dict[str, npt.NDArray[np.integer[Any]]] | None:
        """What drawing needs, for whoever draws elsewhere; None where that is the host's alone."""
        ...


class NegativeSampler:
    """Draws items of `candidates` that are not among a user's excluded items. users, items: the excluded pairs."""

    def __init__(
        self,
        users: npt.NDArray[np.int32],
        items: npt.NDArray[np.int32],
        n_users: int,
        candidates: Items,
        user_ids: pl.Series | None = None,
    ) -> None:
        self.candidates = candidates
        self._user_ids = user_ids
        n_candidates = len(candidates)
        place = np.full(int(max(candidates.max(initial=0), items.max(initial=0))) + 1, -1, np.int64)
        place[candidates] = np.arange(n_candidates)
        is_candidate = place[items] >= 0
        # np.unique hashes first, which for a million distinct pairs takes ten times as long as this sort.
        pairs = np.sort(users[is_candidate].astype(np.int64) * n_candidates + place[items[is_candidate]], kind="stable")
        pairs = pairs[np.diff(pairs, prepend=-1) > 0]
        owners, places = np.divmod(pairs, max(n_candidates, 1))
        self._starts = np.searchsorted(owners, np.arange(n_users + 1))
        # Where each excluded item would stand among what is left when the user's earlier excluded items are cut out.
        self._keys = owners * (n_candidates + 1) + places - (np.arange(len(owners)) - self._starts[owners])
        self._n_free = n_candidates - np.diff(self._starts)

    def free(self, users: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
        """How many items each user leaves to draw from."""
        return self._n_free[users]

    def draw_tables(self) -> dict[str, npt.NDArray[np.integer[Any]]]:
        """What drawing needs, for whoever draws elsewhere.

        keys: sorted, one an excluded pair; starts: where each user's begin; free: how many items each user leaves.
        """
        return {"keys": self._keys, "starts": self._starts, "free": self._n_free, "candidates": self.candidates}

    def draw(self, users: npt.NDArray[np.int32], n: int, rng: np.random.Generator, times: Times | None = None) -> Items:
        """(len(users), n) items, with replacement. times: not read, every candidate can be had at any time."""
        self.check(users, 1)
        drawn = rng.integers(0, np.repeat(self._n_free[users], n)).reshape(len(users), n)
        return self.items_left(users, drawn)

    def items_left(self, users: npt.NDArray[np.int32], drawn: npt.NDArray[np.int64]) -> Items:
        """The items at positions of what each user leaves of the candidates: drawn (len(users), n)."""
        return self.candidates[self._places_left(users, drawn)]

    def _places_left(self, users: npt.NDArray[np.int32], drawn: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Positions among all candidates, from those among what each user leaves."""
        n_candidates = len(self.candidates)
        if drawn.size >= _MANY:
            from gmlfm.kernels.cpu.sampling import places_left

            positions = np.empty_like(drawn)
            places_left(users, drawn, self._keys, self._starts, n_candidates, positions)
            return positions
        users64 = users.astype(np.int64)[:, None]
        passed = np.searchsorted(self._keys, users64 * (n_candidates + 1) + drawn, side="right")
        positions = drawn + passed - self._starts[users64]
        return positions

    def draw_distinct(self, users: npt.NDArray[np.int32], n: int, rng: np.random.Generator) -> Items:
        """(len(users), n) items, no item twice in a row: repeats are drawn again until there are none."""
        self.check(users, n)
        result = self.draw(users, n, rng)
        is_crowded = self._n_free[users] < 2 * n
        for row in np.flatnonzero(is_crowded):
            result[row] = self._shuffled(int(users[row]), n, rng)
        pending = np.flatnonzero(~is_crowded)
        while len(pending):
            order = np.argsort(result[pending], axis=1, kind="stable")
            ordered = np.take_along_axis(result[pending], order, axis=1)
            is_repeat = np.concatenate([np.zeros((len(pending), 1), bool), ordered[:, 1:] == ordered[:, :-1]], axis=1)
            repeats = np.zeros_like(is_repeat)
            np.put_along_axis(repeats, order, is_repeat, axis=1)
            rows, columns = np.nonzero(repeats)
            if len(rows) == 0:
                break
            result[pending[rows], columns] = self.draw(users[pending[rows]], 1, rng)[:, 0]
            pending = pending[np.unique(rows)]
        return result

    def draw_by_user(self, users: npt.NDArray[np.int32], rng: np.random.Generator) -> tuple[Items, npt.NDArray[np.bool_]]:
        """One item for each of `users`, which are sorted, and no item twice for a user; where a user leaves too few, all.

        Returns the items and which of the places in `users` got one: a user's first ones.
        """
        starts = np.flatnonzero(np.diff(users, prepend=-1))
        owners, n_asked = users[starts].astype(np.int64), np.diff(np.append(starts, len(users)))
        n_given = np.minimum(n_asked, self._n_free[owners])
        keys = rng.permutation(self._distinct_keys(owners, n_given, rng))  # which place an item takes is a matter of chance
        keys = keys[np.argsort(keys // (len(self.candidates) + 1), kind="stable")]
        drawn_users, positions = np.divmod(keys, len(self.candidates) + 1)
        items = self.items_left(drawn_users.astype(np.int32), positions[:, None])[:, 0]
        return items, np.arange(len(users)) - np.repeat(starts, n_asked) < np.repeat(n_given, n_asked)

    def _distinct_keys(
        self, owners: npt.NDArray[np.int64], counts: npt.NDArray[np.int64], rng: np.random.Generator
    ) -> npt.NDArray[np.int64]:
        """user * (candidates + 1) + position among what the user leaves: so many distinct ones of each user.

        Repeats are drawn again; for a user who is given most of what is left, all positions are shuffled instead.
        """
        stride, n_free = len(self.candidates) + 1, self._n_free[owners]
        is_crowded = 2 * counts > n_free
        crowded = zip(owners[is_crowded], counts[is_crowded], n_free[is_crowded], strict=True)
        complete = [owner * stride + rng.permutation(free)[:count] for owner, count, free in crowded]
        owners, counts, n_free = owners[~is_crowded], counts[~is_crowded], n_free[~is_crowded]
        keys, n_missing = np.empty(0, np.int64), counts
        while len(owners):
            fresh = np.repeat(owners * stride, n_missing) + rng.integers(0, np.repeat(n_free, n_missing))
            keys = np.sort(np.concatenate([keys, fresh]))
            keys = keys[np.diff(keys, prepend=-1) > 0]
            n_missing = counts - np.diff(np.searchsorted(keys, np.append(owners, owners[-1] + 1) * stride))
            is_short = np.repeat(n_missing > 0, counts - n_missing)
            complete.append(keys[~is_short])
            keys, pending = keys[is_short], n_missing > 0
            owners, counts, n_free, n_missing = owners[pending], counts[pending], n_free[pending], n_missing[pending]
        return np.concatenate([np.empty(0, np.int64), *complete])

    def _shuffled(self, user: int, n: int, rng: np.random.Generator) -> Items:
        """For a user with few items left: n distinct ones by exponential keys, which is drawing one after another."""
        is_excluded = np.zeros(len(self.candidates), bool)
        start, stop = self._starts[user], self._starts[user + 1]
        is_excluded[self._keys[start:stop] - user * (len(self.candidates) + 1) + np.arange(stop - start)] = True
        left = np.flatnonzero(~is_excluded)
        keys = rng.exponential(size=len(left))
        return self.candidates[left[np.argsort(keys)[:n]]]

    def check_rows(self, users: npt.NDArray[np.int32], times: Times | None = None) -> None:
        self.check(users, 1)

    def check(self, users: npt.NDArray[np.int32], n: int) -> None:
        """Every user must leave n items or more."""
        short = np.flatnonzero(self._n_free[users] < n)
        if len(short):
            user = int(users[short[0]])
            name = f"'{self._user_ids[user]}'" if self._user_ids is not None else f"number {user}"
            left = int(self._n_free[user])
            raise DataError(
                f"user {name} leaves {left:,} of {len(self.candidates):,} items to draw a negative from, {n} needed "
                f"({len(np.unique(users[short])):,} such users); ask for fewer negatives, or leave these users out."
            )


def training_sampler(data: Dataset, rows: Rows, candidates: Items | None = None) -> NegativeSampler:
    """Of items that occur in any interaction, those but the user's positives visible in training, which are among `rows`.

    Held-out positives must stay among the negatives: leaving them out would make them the only unseen items that are
    never pushed down, which leaks the test set.
    """
    visible = rows[data.interactions["positive"].to_numpy()[rows]]
    allowed = data.seen_items if candidates is None else candidates
    return NegativeSampler(data.user_numbers[visible], data.item_numbers[visible], len(data.users), allowed, data.users.ids)


@dataclass(frozen=True)
class TrainingNegatives:
    """n negatives beside each training positive: fresh every epoch, or fixed as in the paper's code.

    times: of the training rows, where negatives are items that can be had then (AvailabilitySampler).
    """

    sampler: Sampler
    users: npt.NDArray[np.int32]
    n: int
    seed: int = 0
    fresh: bool = True
    times: Times | None = None

    def of_epoch(self, epoch: int) -> Items:
        rng = np.random.default_rng([self.seed, 11, epoch if self.fresh else 0])
        return self.sampler.draw(self.users, self.n, rng, self.times)

    def of(self, places: Rows) -> TrainingNegatives:
        """Those of some of the rows, by their places among these."""
        return replace(self, users=self.users[places], times=None if self.times is None else self.times[places])

    def check(self) -> None:
        self.sampler.check_rows(self.users, self.times)

    def draw(self, places: Rows, rng: np.random.Generator) -> Items:
        """Of the training rows at some places."""
        return self.sampler.draw(self.users[places], self.n, rng, None if self.times is None else self.times[places])
