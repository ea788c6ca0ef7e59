"""Negatives: items that a user did not choose, drawn without rejection and without a users x items matrix.

For each user the weights of her excluded items are cut out of the line of all weights; a uniform draw on what remains
is mapped back by one binary search in her excluded items and one in the items. Memory: a few numbers an interaction.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from gmlfm.data.dataset import Dataset, Rows
from gmlfm.data.splits import TEST, TRAIN, VALIDATION, Split, random_parts
from gmlfm.errors import DataError, OptionError, did_you_mean

Items = npt.NDArray[np.int32]
Weighting = Literal["uniform", "popularity"]
_MANY = 200_000  # draws at once, from which a compiled search pays
_TOTAL_WEIGHT = 2**30  # fine enough to tell any two popularities apart, and times 2**32 users still an int64


class NegativeSampler:
    """Draws items of `candidates` that are not among a user's excluded items.

    users, items: the excluded pairs. weights: whole numbers by candidate; None draws uniformly.
    """

    def __init__(
        self,
        users: npt.NDArray[np.int32],
        items: npt.NDArray[np.int32],
        n_users: int,
        candidates: Items,
        weights: npt.NDArray[np.int64] | None = None,
        user_ids: pl.Series | None = None,
    ) -> None:
        self.candidates = candidates
        self._user_ids = user_ids
        self._weights = np.ones(len(candidates), np.int64) if weights is None else weights
        self._uniform = weights is None
        self._ends = np.cumsum(self._weights)
        self._total = int(self._ends[-1]) if len(candidates) else 0
        place = np.full(int(max(candidates.max(initial=0), items.max(initial=0))) + 1, -1, np.int64)
        place[candidates] = np.arange(len(candidates))
        known = place[items] >= 0
        # np.unique hashes first, which for a million distinct pairs takes ten times as long as this sort.
        pairs = np.sort(users[known].astype(np.int64) * len(candidates) + place[items[known]], kind="stable")
        pairs = pairs[np.diff(pairs, prepend=-1) > 0]
        owners, places = np.divmod(pairs, max(len(candidates), 1))
        self._first = np.searchsorted(owners, np.arange(n_users + 1))
        own = self._weights[places]
        before = np.concatenate(([0], np.cumsum(own)))
        own_before = before[:-1] - before[self._first[owners]]
        # Where each excluded item would stand on the line from which the user's earlier excluded items are cut out.
        self._keys = owners * (self._total + 1) + (self._ends[places] - own) - own_before
        self._cut_before = before
        self._free = self._total - (before[self._first[1:]] - before[self._first[:-1]])
        self._n_free = len(candidates) - np.diff(self._first)

    def free(self, users: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
        """How many items each user leaves to draw from."""
        return self._n_free[users]

    def line(self) -> dict[str, npt.NDArray[np.integer[Any]]]:
        """What drawing needs, for whoever draws elsewhere; `ends` only where items have weights."""
        found: dict[str, npt.NDArray[np.integer[Any]]] = {
            "keys": self._keys,
            "cut_before": self._cut_before,
            "first": self._first,
            "free": self._free,
            "total": np.array(self._total),
            "candidates": self.candidates,
        }
        return found if self._uniform else {**found, "ends": self._ends}

    def draw(self, users: npt.NDArray[np.int32], n: int, rng: np.random.Generator) -> Items:
        """(len(users), n) items, with replacement."""
        self.check(users, 1)
        drawn = rng.integers(0, np.repeat(self._free[users], n)).reshape(len(users), n)
        return self.items_left(users, drawn)

    def items_left(self, users: npt.NDArray[np.int32], drawn: npt.NDArray[np.int64]) -> Items:
        """The items at positions of what each user leaves of the line: drawn (len(users), n)."""
        positions = self._left(users, drawn)
        places = positions if self._uniform else np.searchsorted(self._ends, positions, side="right")
        return self.candidates[places]

    def _left(self, users: npt.NDArray[np.int32], drawn: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Positions on the line of all weights, from those on what each user leaves of it."""
        if drawn.size >= _MANY:
            from gmlfm.kernels.cpu.sampling import places_left

            found = np.empty_like(drawn)
            places_left(users, drawn, self._keys, self._first, self._cut_before, self._total, found)
            return found
        users64 = users.astype(np.int64)[:, None]
        passed = np.searchsorted(self._keys, users64 * (self._total + 1) + drawn, side="right")
        moved: npt.NDArray[np.int64] = drawn + self._cut_before[passed] - self._cut_before[self._first[users64]]
        return moved

    def draw_distinct(self, users: npt.NDArray[np.int32], n: int, rng: np.random.Generator) -> Items:
        """(len(users), n) items, no item twice in a row: repeats are drawn again until there are none."""
        self.check(users, n)
        result = self.draw(users, n, rng)
        pending = np.arange(len(users))
        crowded = self._n_free[users] < 2 * n
        for at in np.flatnonzero(crowded):
            result[at] = self._shuffled(int(users[at]), n, rng)
        pending = pending[~crowded]
        while len(pending):
            order = np.argsort(result[pending], axis=1, kind="stable")
            ordered = np.take_along_axis(result[pending], order, axis=1)
            again_ordered = np.concatenate([np.zeros((len(pending), 1), bool), ordered[:, 1:] == ordered[:, :-1]], axis=1)
            again = np.zeros_like(again_ordered)
            np.put_along_axis(again, order, again_ordered, axis=1)
            rows, columns = np.nonzero(again)
            if len(rows) == 0:
                break
            result[pending[rows], columns] = self.draw(users[pending[rows]], 1, rng)[:, 0]
            pending = pending[np.unique(rows)]
        return result

    def _shuffled(self, user: int, n: int, rng: np.random.Generator) -> Items:
        """For a user with few items left: n distinct ones by exponential keys, which is drawing one after another."""
        excluded = np.zeros(len(self.candidates), bool)
        excluded[self._places_of(user)] = True
        left = np.flatnonzero(~excluded)
        keys = rng.exponential(size=len(left)) / self._weights[left]
        return self.candidates[left[np.argsort(keys)[:n]]]

    def _places_of(self, user: int) -> npt.NDArray[np.int64]:
        part = slice(self._first[user], self._first[user + 1])
        positions = self._keys[part] - user * (self._total + 1) + self._cut_before[part] - self._cut_before[self._first[user]]
        places: npt.NDArray[np.int64] = np.searchsorted(self._ends, positions, side="right")
        return places

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


def training_sampler(
    data: Dataset, split: Split, weighting: Weighting = "uniform", power: float = 0.75, candidates: Items | None = None
) -> NegativeSampler:
    """Avoids only the positives visible in training.

    Held-out positives must stay among the negatives: leaving them out would make them the only unseen items that are
    never pushed down, which leaks the test set.
    """
    if weighting not in ("uniform", "popularity"):
        raise OptionError(f"negatives is '{weighting}'{did_you_mean(weighting, ('uniform', 'popularity'))}")
    visible = split.train[data.interactions["positive"].to_numpy()[split.train]]
    items = data.item_numbers[visible]
    allowed = data.seen_items if candidates is None else candidates
    weights = None
    if weighting == "popularity":
        popularity = np.bincount(items, minlength=len(data.items))[allowed].astype(np.float64) ** power
        # An item never met keeps a little weight, or it could never be pushed down.
        popularity = np.maximum(popularity, min(1.0, popularity[popularity > 0].min(initial=1.0)) / 10)
        weights = np.maximum(np.rint(popularity * (_TOTAL_WEIGHT / popularity.sum())), 1).astype(np.int64)
    return NegativeSampler(data.user_numbers[visible], items, len(data.users), allowed, weights, data.users.ids)


@dataclass(frozen=True)
class TrainingNegatives:
    """n negatives beside each training positive: fresh every epoch, or fixed as in the paper's code."""

    sampler: NegativeSampler
    users: npt.NDArray[np.int32]
    n: int
    seed: int = 0
    fresh: bool = True

    def of_epoch(self, epoch: int) -> Items:
        rng = np.random.default_rng([self.seed, 11, epoch if self.fresh else 0])
        return self.sampler.draw(self.users, self.n, rng)


@dataclass(frozen=True)
class Pairs:
    """(user, item) numbers."""

    users: npt.NDArray[np.int32]
    items: Items

    @classmethod
    def positives(cls, data: Dataset, more: Pairs | None = None) -> Pairs:
        """The positives of all parts, and more that are known from elsewhere."""
        users, items = data.user_numbers[data.positive_rows], data.item_numbers[data.positive_rows]
        if more is None:
            return cls(users, items)
        return cls(np.concatenate([users, more.users]), np.concatenate([items, more.items]))


def evaluation_candidates(
    data: Dataset, rows: Rows, n: int = 99, seed: int = 0, candidates: Items | None = None, more: Pairs | None = None
) -> tuple[Items, str]:
    """For each tested row n distinct items that are none of the user's positives in any part, and the lists' hash."""
    had = Pairs.positives(data, more)
    allowed = data.seen_items if candidates is None else candidates
    sampler = NegativeSampler(had.users, had.items, len(data.users), allowed, None, data.users.ids)
    users = data.user_numbers[rows]
    least = int(np.argmin(sampler.free(users)))
    if sampler.free(users)[least] < n:
        raise DataError(
            f"user '{data.users.ids[int(users[least])]}' leaves {sampler.free(users)[least]:,} of {len(allowed):,} items, but "
            f"{n} are to be sampled for her; these data are too small for that protocol, use full."
        )
    drawn = sampler.draw_distinct(users, n, np.random.default_rng([seed, 2]))
    return drawn, hashlib.sha256(rows.astype("<i8").tobytes() + drawn.astype("<i4").tobytes()).hexdigest()[:16]


@dataclass(frozen=True)
class Instances:
    """The task `implicit`: positives (+1) and sampled negatives (-1) as instances, split after they were drawn.

    `rows` names the interaction each came from; a negative takes its positive's context.
    """

    users: npt.NDArray[np.int32]
    items: Items
    labels: npt.NDArray[np.float32]
    rows: Rows
    split: Split


def implicit_instances(
    data: Dataset, negatives: int = 2, seed: int = 0, validation: float = 0.2, test: float = 0.1
) -> Instances:
    """Negatives are none of the user's positives; then all instances are split at random, 70/20/10."""
    positives = data.positive_rows
    users, items = data.user_numbers[positives], data.item_numbers[positives]
    sampler = NegativeSampler(users, items, len(data.users), data.seen_items, None, data.users.ids)
    drawn = sampler.draw(users, negatives, np.random.default_rng([seed, 3]))
    all_items = np.concatenate([items[:, None], drawn], axis=1).ravel()
    labels = np.tile(np.array([1.0] + [-1.0] * negatives, np.float32), len(positives))
    part = random_parts(len(all_items), validation, test, np.random.default_rng([seed, 4]))
    drawn_hash = hashlib.sha256(all_items.astype("<i4").tobytes()).hexdigest()[:16]
    split = Split(
        "random",
        train=np.flatnonzero(part == TRAIN),
        validation=np.flatnonzero(part == VALIDATION),
        test=np.flatnonzero(part == TEST),
        unused=np.empty(0, np.int64),
        options={"seed": seed, "task": "implicit", "negatives": negatives, "instances": drawn_hash},
        data_hash=data.content_hash,
    )
    return Instances(np.repeat(users, 1 + negatives), all_items, labels, np.repeat(positives, 1 + negatives), split)
