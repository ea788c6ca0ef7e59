"""Candidates: against which items the item of each tested row is ranked. One definition for every protocol and model.

ordinary data      the items that occur in the interactions
split newcomers    items without a training row among such items, items with one among those with one
items sell once    items that sell once among such items: those that can be had at the row's time, where listing times are
                   declared and the split is by time; else those without a row before the part begins. Other items among others
split files        the lists it brings, where the protocol samples
protocol paper     as published: the items that occur in the interactions
always             without the user's other positives: of all parts for test rows, of all but the test part for validation rows;
                   where the data keep repeats, of the tested part alone: what the user had before may be chosen again

A scorer that knows only which items have training rows is at chance among them. Where pools are narrower than the data, rows
with fewer than 100 candidates are left out and counted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from gmlfm.arguments import whole_number
from gmlfm.data.availability import Times
from gmlfm.data.dataset import Dataset, Rows
from gmlfm.data.splits import Split
from gmlfm.errors import DataError, OptionError
from gmlfm.evaluation.pools import CandidateSampler, ItemPools, item_pools

N_SAMPLED = 99
FEWEST = N_SAMPLED + 1  # candidates of a row, its target included, where pools are narrower than the data
Ints = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Pairs:
    """(user, item) numbers."""

    users: Ints
    items: Ints

    @classmethod
    def excluded(cls, data: Dataset, tested: Rows, more: Pairs | None = None, without: Rows | None = None) -> Pairs:
        """What no tested row's item is ranked among: the user's positives.

        Where the data keep repeats, only those of the tested rows. An item that a user chooses again would be the only one that
        they had among items that they never had, and be known by that alone.
        """
        if data.schema.interactions.repeats == "keep":
            return cls(data.user_numbers[tested], data.item_numbers[tested])
        return cls.positives(data, more, without)

    @classmethod
    def positives(cls, data: Dataset, more: Pairs | None = None, without: Rows | None = None) -> Pairs:
        """The positives of all parts but those of some rows, and more that are known from elsewhere."""
        rows = data.positive_rows
        if without is not None:
            is_left = np.ones(data.n_interactions, bool)
            is_left[without] = False
            rows = rows[is_left[rows]]
        users, items = data.user_numbers[rows], data.item_numbers[rows]
        if more is None:
            return cls(users, items)
        return cls(np.concatenate([users, more.users]), np.concatenate([items, more.items]))


@dataclass(frozen=True, eq=False)
class Candidates:
    """Tested rows, their users and items (targets), and what each target is ranked among.

    times: by row, where the pools have times; lists: (N, C) item numbers brought from outside, -1 where a list is shorter;
    places: of the rows among those of the part.
    """

    data: Dataset
    rows: Rows
    pools: ItemPools
    excluded: Pairs
    times: Times | None = None
    lists: Ints | None = None
    places: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    notes: tuple[str, ...] = ()
    fills_up: bool = False  # whether fewer than 99 sampled candidates are taken where there are no more

    @classmethod
    def of_part(cls, data: Dataset, split: Split, part: str, protocol: str = "full") -> Candidates:
        """A split's validation or test part."""
        if part not in ("test", "validation"):
            raise OptionError(f"part is '{part}'; expected test or validation.")
        rows, lists = (split.test, split.test_candidates) if part == "test" else (split.validation, split.validation_candidates)
        if protocol == "paper":
            return replace(cls.ordinary(data, rows), lists=lists)
        candidates = cls._of_part(data, split, part, rows)
        if lists is not None and protocol == "sampled":
            return replace(candidates, lists=lists)
        notes = () if lists is None else ("the split brings candidate lists, among which the protocol sampled ranks.",)
        return replace(candidates, notes=notes)._of_usual_length()

    @classmethod
    def like_part(cls, data: Dataset, split: Split, part: str, protocol: str, rows: Rows) -> Candidates:
        """Any rows of a split's data, ranked as those of its validation or test part are."""
        return cls.ordinary(data, rows) if protocol == "paper" else cls._of_part(data, split, part, rows)._of_usual_length()

    @classmethod
    def _of_part(cls, data: Dataset, split: Split, part: str, rows: Rows) -> Candidates:
        excluded = Pairs.excluded(data, rows, without=None if part == "test" else split.test)
        pools = part_pools(data, split, part)
        availability = data.availability
        times = None if pools.interval is None or availability is None else availability.row_times[rows]
        return cls(data, rows, pools, excluded, times, places=np.arange(len(rows)))

    @classmethod
    def of_rows(cls, data: Dataset, rows: Rows, pools: ItemPools, more: Pairs | None = None) -> Candidates:
        """Any rows in given pools. more: positives that are known from elsewhere."""
        return cls(data, rows, pools, Pairs.excluded(data, rows, more), places=np.arange(len(rows)))._of_usual_length()

    @classmethod
    def ordinary(cls, data: Dataset, rows: Rows, items: Ints | None = None, more: Pairs | None = None) -> Candidates:
        """Any rows, ranked among the items that occur in the interactions, or among others that are named.

        more: positives that are known from elsewhere.
        """
        allowed = data.seen_items if items is None else items
        return cls.of_rows(data, rows, item_pools(_flags(len(data.items), allowed)), more)

    @cached_property
    def users(self) -> Ints:
        return self.data.user_numbers[self.rows]

    @cached_property
    def targets(self) -> Ints:
        return self.data.item_numbers[self.rows]

    @cached_property
    def sampler(self) -> CandidateSampler:
        return CandidateSampler(self.pools, self.excluded.users, self.excluded.items, len(self.data.users))

    def take(self, places: npt.NDArray[np.integer[Any]]) -> Candidates:
        """Some of the rows, by their places among these."""
        return replace(
            self,
            rows=self.rows[places],
            times=None if self.times is None else self.times[places],
            lists=None if self.lists is None else self.lists[places],
            places=self.places[places],
        )

    def of_some_users(self, n: int, seed: int = 0) -> Candidates:
        """A seeded sample of n tested users, each with all of their rows; all where there are no more."""
        n = whole_number(n, "users", least=1)
        users = np.unique(self.users)
        if n >= len(users):
            return self
        chosen = np.random.default_rng([seed, 3]).choice(users, n, replace=False)
        note = f"a sample of {n:,} of {len(users):,} tested users, seed {seed}."
        return replace(self.take(np.flatnonzero(np.isin(self.users, chosen))), notes=(*self.notes, note))

    def sampled(self, seed: int = 0, n: int = N_SAMPLED) -> tuple[Ints, str]:
        """(N, n) items beside each target, distinct, -1 where there are fewer; and the lists' hash."""
        if self.lists is not None:
            drawn = np.where(self.lists == self.targets[:, None], -1, self.lists).astype(np.int32)
        else:
            if not self.fills_up:
                self._check_enough(n)
            drawn = self.sampler.draw(self.users, self.targets, self.times, n, np.random.default_rng([seed, 2]))
        return drawn, hashlib.sha256(self.rows.astype("<i8").tobytes() + drawn.astype("<i4").tobytes()).hexdigest()[:16]

    def _check_enough(self, n: int) -> None:
        free = self.sampler.counts(self.users, self.targets, self.times) - 1
        least = int(np.argmin(free))
        if free[least] < n:
            raise DataError(
                f"user '{self.data.users.ids[int(self.users[least])]}' leaves {free[least]:,} of {len(self.pools.items):,} "
                f"items, but {n} are to be sampled; these data are too small for that protocol, use full."
            )

    def _of_usual_length(self) -> Candidates:
        """Without the rows of narrow pools that have few candidates: among those anybody is near the top, which would lift
        every figure."""
        if _is_ordinary(self.pools):
            return self
        is_kept = self.sampler.counts(self.users, self.targets, self.times) >= FEWEST
        n_short = int((~is_kept).sum())
        if n_short == 0:
            return self
        if n_short == len(self.rows):
            note = f"every tested row has fewer than {FEWEST} candidates of its kind; all are kept, each among those it has."
            return replace(self, notes=(*self.notes, note), fills_up=True)
        note = f"{n_short:,} of {len(self.rows):,} rows are left out: fewer than {FEWEST} candidates of their kind."
        return replace(self.take(np.flatnonzero(is_kept)), notes=(*self.notes, note))


def part_pools(data: Dataset, split: Split, part: str) -> ItemPools:
    """The pools of a split's part, by item."""
    is_seen, n_items = _flags(len(data.items), data.seen_items), len(data.items)
    is_trained = _flags(n_items, data.item_numbers[split.train])
    is_validated = _flags(n_items, data.item_numbers[split.validation]) if part == "test" else np.zeros(n_items, bool)
    kind = None
    if split.name == "newcomers":
        # Three kinds for the test part: a refit meets the second, which the first training did not.
        kind = np.where(is_trained, 0, np.where(is_validated, 1, 2)).astype(np.int8)
    if not data.sells_once:
        return item_pools(is_seen, kind=kind)
    availability = data.availability if split.name == "global-time" else None
    if availability is not None:
        return item_pools(is_seen, single_unit=data.single_unit_items, interval=(availability.start, availability.end))
    before = is_trained | is_validated | _flags(n_items, data.item_numbers[split.unused])
    return item_pools(is_seen, single_unit=data.single_unit_items, has_row_before=before, kind=kind)


def evaluation_candidates(data: Dataset, rows: Rows, n: int = N_SAMPLED, seed: int = 0) -> tuple[Ints, str]:
    """For each row n distinct items of the interactions that are none of the user's positives, and the lists' hash."""
    return Candidates.ordinary(data, rows).sampled(seed, n)


def _is_ordinary(pools: ItemPools) -> bool:
    return pools.interval is None and not pools.pool.max(initial=0)


def _flags(n: int, numbers: npt.NDArray[np.integer[Any]] | Sequence[int]) -> npt.NDArray[np.bool_]:
    flags = np.zeros(n, bool)
    flags[np.asarray(numbers, np.int64)] = True
    return flags
