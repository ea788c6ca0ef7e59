"""Negatives where things sell once: items that could be had at the time of the row, from their listing to their sale.

Which items those are changes with every row, so no list serves all rows. Time is cut into blocks with about as many rows in
each; a block lists the items that can be had at any time within it, sorted by their start. A draw takes one of those that
started by the row's time and is repeated where that item was sold before, or is a positive of the user. There are as many
blocks as keep the lists within four entries an item: then three draws in four are good, whether items stay for days or years.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import polars as pl

from gmlfm.data.availability import Availability, Times, tell_untimed
from gmlfm.data.dataset import Dataset, Rows
from gmlfm.errors import DataError
from gmlfm.training.sampling.negatives import Items, TrainingNegatives, training_sampler

if TYPE_CHECKING:
    from gmlfm.training.sampling.batches import BatchOptions

_LOG = logging.getLogger("gmlfm")
_ENTRIES_PER_ITEM = 4
_MOST_ROUNDS = 50  # of repeated draws, after which a row's items are listed and drawn from exactly
Places = npt.NDArray[np.int64]


class AvailableItems:
    """Finds the items with start <= t <= end. start, end: by item number, whole numbers on one scale, as the times are.

    times: those that will be asked for, or a sample of them; they only decide where blocks are cut.
    """

    def __init__(self, start: Times, end: Times, times: Times) -> None:
        self.start, self.end = start, end
        self.ever: Items = np.flatnonzero(start <= end).astype(np.int32)  # sorted by number: those that can be had at some time
        self._starts, self._ends = np.sort(start[self.ever]), np.sort(end[self.ever])
        by_start = self.ever[np.argsort(start[self.ever], kind="stable")]
        self._cuts = self._finest_cuts(np.sort(times))
        first, last = (np.searchsorted(self._cuts, times[by_start], side="right") for times in (start, end))
        lengths = last - first + 1
        begins = np.cumsum(lengths) - lengths
        blocks = np.repeat(first - begins, lengths) + np.arange(int(lengths.sum()))
        order = np.argsort(blocks, kind="stable")  # within a block the order by start stays
        self._items: Items = np.repeat(by_start, lengths)[order]
        self._block_starts = np.searchsorted(blocks[order], np.arange(len(self._cuts) + 2))
        # An entry's block and how many distinct starts there are up to its own, as one sorted key.
        self._moments = np.unique(self._starts)
        self._keys = self._key(blocks[order], start[self._items])

    def _finest_cuts(self, times: Times) -> Times:
        """Where time is cut into blocks: as many, by doubling, as the entries allow."""
        cuts, n_blocks = times[:0], 2
        while n_blocks <= len(times):
            finer = np.unique(times[np.arange(1, n_blocks) * len(times) // n_blocks])
            n_across = np.searchsorted(self._starts, finer) - np.searchsorted(self._ends, finer)  # items on both sides of a cut
            if len(self.ever) + int(n_across.sum()) > _ENTRIES_PER_ITEM * len(self.ever):
                break
            cuts, n_blocks = finer, 2 * n_blocks
        return cuts

    def _key(self, blocks: Places, times: Times) -> Places:
        keys: Places = blocks * (len(self._moments) + 1) + np.searchsorted(self._moments, times, side="right")
        return keys

    def count(self, times: Times) -> Places:
        """How many items can be had at each time."""
        counts: Places = np.searchsorted(self._starts, times, side="right") - np.searchsorted(self._ends, times, side="left")
        return counts

    def slices(self, times: Times) -> tuple[Places, Places]:
        """Where the entries begin and end that started by each time, in its block."""
        blocks = np.searchsorted(self._cuts, times, side="right")
        return self._block_starts[blocks], np.searchsorted(self._keys, self._key(blocks, times), side="right")

    def entries(self, places: Places) -> Items:
        return self._items[places]

    def at_time(self, time: int) -> Items:
        """The items that can be had at a time."""
        (first,), (stop,) = self.slices(np.array([time]))
        items = self._items[first:stop]
        return items[self.end[items] >= time]


class AvailabilitySampler:
    """Draws items that can be had at a row's time and are not among the user's excluded ones. users, items: excluded pairs."""

    def __init__(
        self,
        users: npt.NDArray[np.int32],
        items: npt.NDArray[np.int32],
        available: AvailableItems,
        user_ids: pl.Series | None = None,
    ) -> None:
        self.available, self._user_ids = available, user_ids
        self._n_items = len(available.start)
        pairs = np.sort(users.astype(np.int64) * self._n_items + items, kind="stable")
        self._pairs = pairs[np.diff(pairs, prepend=-1) > 0]

    def draw_tables(self) -> None:
        """Drawn on the host alone."""
        return None

    def draw(self, users: npt.NDArray[np.int32], n: int, rng: np.random.Generator, times: Times | None = None) -> Items:
        """(len(users), n) items, with replacement, uniform over what each row leaves."""
        assert times is not None  # what can be had depends on when
        first, stop = (np.repeat(places, n) for places in self.available.slices(times))
        owners, moments = np.repeat(users, n), np.repeat(times, n)
        drawn = np.empty(len(owners), np.int32)
        pending, is_empty = np.flatnonzero(first < stop), first >= stop
        for _ in range(_MOST_ROUNDS):
            items = self.available.entries(rng.integers(first[pending], stop[pending]))
            drawn[pending] = items
            is_bad = (self.available.end[items] < moments[pending]) | self._is_excluded(owners[pending], items)
            pending = pending[is_bad]
            if len(pending) == 0:
                break
        pending = np.sort(np.concatenate([pending, np.flatnonzero(is_empty)]))
        rows, starts = np.unique(pending // n, return_index=True)
        for row, draws in zip(rows, np.split(pending, starts[1:]), strict=False):
            left = self.items_left(int(users[row]), int(times[row]))
            if len(left) == 0:
                self.check_rows(users, times)
            drawn[draws] = rng.choice(left, len(draws))
        return drawn.reshape(len(users), n)

    def has_items(self, users: npt.NDArray[np.int32], times: Times) -> npt.NDArray[np.bool_]:
        """Whether each row leaves an item to draw."""
        starts = np.searchsorted(self._pairs, users.astype(np.int64) * self._n_items)
        stops = np.searchsorted(self._pairs, (users.astype(np.int64) + 1) * self._n_items)
        result: npt.NDArray[np.bool_] = self.available.count(times) > stops - starts
        for row in np.flatnonzero(~result):  # the user's items may be as many, and some of them gone or not there yet
            result[row] = len(self.items_left(int(users[row]), int(times[row]))) > 0
        return result

    def items_left(self, user: int, time: int) -> Items:
        """The items that a row of the user at that time may have as negatives."""
        items = self.available.at_time(time)
        return items[~self._is_excluded(np.full(len(items), user), items)]

    def check_rows(self, users: npt.NDArray[np.int32], times: Times | None = None) -> None:
        assert times is not None
        has_items = self.has_items(users, times)
        if not has_items.all():
            row = int(np.argmin(has_items))
            name = f"'{self._user_ids[int(users[row])]}'" if self._user_ids is not None else f"number {users[row]}"
            raise DataError(
                f"a row of user {name} leaves no item to draw a negative from: nothing else could be had at its time "
                f"({int((~has_items).sum()):,} such rows); leave these rows out."
            )

    def _is_excluded(self, users: npt.NDArray[np.integer[Any]], items: Items) -> npt.NDArray[np.bool_]:
        keys = users.astype(np.int64) * self._n_items + items
        if len(self._pairs) == 0:
            return np.zeros(len(keys), bool)
        places = np.minimum(np.searchsorted(self._pairs, keys), len(self._pairs) - 1)
        result: npt.NDArray[np.bool_] = self._pairs[places] == keys
        return result


def training_negatives(data: Dataset, rows: Rows, split: str, options: BatchOptions) -> tuple[Rows, TrainingNegatives]:
    """The negatives of training rows, and the rows that have some.

    With listing times of items that sell once and the split global-time: items of the whole catalogue that can be had at the
    row's time, and rows that leave none are left out (the first sales of a market). Otherwise: items that occur in any
    interaction. In both never a positive of the user that is visible in training.
    """
    return negatives_at_times(data, rows, data.availability if split == "global-time" else None, options)


def row_availability(data: Dataset, split: str) -> Availability | None:
    """What could be had at the time of each row, by listing times and by sales, as far as they are known; None where that is
    everything. Sales count where the split is by time: else a held-out row would tell when its item was gone."""
    ends = data.sells_once and split == "global-time"
    listed = data.items.listed
    if "time" not in data.interactions.columns or (listed is None and not ends):
        return None
    times = data.interactions["time"]
    if times.null_count():
        tell_untimed(times.null_count())
        return None
    if listed is None:
        listed = pl.Series("listed", [None], dtype=times.dtype).new_from_index(0, len(data.items))
    single_unit = data.single_unit_items if ends else np.zeros(len(data.items), bool)
    return Availability.of(times, data.item_numbers, listed, single_unit)


def negatives_at_times(
    data: Dataset, rows: Rows, availability: Availability | None, options: BatchOptions
) -> tuple[Rows, TrainingNegatives]:
    n = (options.n_negatives, options.seed, options.fresh)
    if availability is None:
        return rows, TrainingNegatives(training_sampler(data, rows), data.user_numbers[rows], *n)
    visible = rows[data.interactions["positive"].to_numpy()[rows]]
    available = AvailableItems(availability.start, availability.end, availability.row_times[rows])
    sampler = AvailabilitySampler(data.user_numbers[visible], data.item_numbers[visible], available, data.users.ids)
    has_items = sampler.has_items(data.user_numbers[rows], availability.row_times[rows])
    if not has_items.any():
        sampler.check_rows(data.user_numbers[rows], availability.row_times[rows])
    if not has_items.all():
        _LOG.warning("%s training rows are left out: nothing else could be had at their time.", f"{(~has_items).sum():,}")
    rows = rows[has_items]
    return rows, TrainingNegatives(sampler, data.user_numbers[rows], *n, availability.row_times[rows])
