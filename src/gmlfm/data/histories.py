"""What users did before: their events in the order of time, and the history as of a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from gmlfm.data.dataset import Dataset, Rows
from gmlfm.data.splits import Split

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]


@dataclass(frozen=True)
class History:
    """What N users did before, oldest first: the items of user n are items[starts[n]:starts[n + 1]].

    starts: (N + 1,); items: (M,).
    """

    starts: Longs
    items: Ints

    @classmethod
    def of(cls, by_user: Sequence[Sequence[int] | npt.NDArray[np.integer[Any]]]) -> History:
        """From a list of items for each user."""
        starts = np.concatenate([[0], np.cumsum([len(items) for items in by_user], dtype=np.int64)]).astype(np.int64)
        items = np.concatenate([np.empty(0, np.int32), *(np.asarray(items, np.int32) for items in by_user)])
        return cls(starts, items.astype(np.int32))

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def lengths(self) -> Longs:
        return np.diff(self.starts)

    def of_user(self, user: int) -> Ints:
        return self.items[self.starts[user] : self.starts[user + 1]]

    def slice(self, start: int, stop: int) -> History:
        starts = self.starts[start : stop + 1]
        return History(starts - starts[0], self.items[starts[0] : starts[-1]])

    def latest(self, length: int) -> History:
        """Of each user at most so many, the latest ones."""
        return gathered(self.items, np.maximum(self.starts[:-1], self.starts[1:] - length), self.starts[1:])


def gathered(items: Ints, start: Longs, stop: Longs) -> History:
    """items[start[n]:stop[n]] of each n, one after another."""
    places, starts = ranges(start, stop)
    return History(starts, items[places])


def ranges(start: Longs, stop: Longs) -> tuple[Longs, Longs]:
    """start[n], start[n] + 1, ..., stop[n] - 1 of each n, one after another; and where each n begins among them, (N + 1,)."""
    lengths = stop - start
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return np.arange(starts[-1]) + np.repeat(start - starts[:-1], lengths), starts


@dataclass(frozen=True)
class Histories:
    """The events of users that count as history, in the order of time.

    starts: (users + 1,) where each user's events begin; items, order, is_had: by event, order ascending within a user; is_had
    says that the user had the item, so that it is not recommended again; where repeats are kept, no event does. An event is
    history of a row where its order is below the row's; in data without times all of a user's other events are. row_users,
    row_items, row_order: of each interaction. excludes_own: events of a row's own pair are no history of it.
    """

    starts: Longs
    items: Ints
    order: Longs
    is_had: npt.NDArray[np.bool_]
    row_users: Ints = field(repr=False)
    row_items: Ints = field(repr=False)
    row_order: Longs = field(repr=False)
    excludes_own: bool = False

    @classmethod
    def of(cls, data: Dataset, visible: Rows | None = None) -> Histories:
        """visible: the interactions that may be seen, all without it. Rows that are history alone are always among them."""
        row_order, extra_order, extra = data.history_order, data.history_rows_order, data.history_rows
        rows = np.flatnonzero(data.counts_as_history) if visible is None else visible[data.counts_as_history[visible]]
        users = np.concatenate([data.user_numbers[rows], extra["user"].to_numpy()])
        items = np.concatenate([data.item_numbers[rows], extra["item"].to_numpy()])
        order = np.concatenate([row_order[rows], extra_order])
        is_had = np.concatenate([np.ones(len(rows), bool), extra["is_had"].to_numpy()])
        # Rows of one time stay in the order of the file: which of them is the latest must not depend on the sort.
        by_user = np.lexsort((order, users))
        starts = np.searchsorted(users[by_user], np.arange(len(data.users) + 1))
        spec = data.schema.interactions
        # Merged pairs have one row, but rows that count as history alone, and another one in each context.
        excludes_own = spec.repeats == "merge" and (len(extra_order) > 0 or len(spec.context) > 0)
        if not is_ordered(data):
            row_order, excludes_own = np.full(len(row_order), int(order.max(initial=0)) + 1), True
        is_had &= spec.repeats == "merge"
        events = (items[by_user].astype(np.int32), order[by_user], is_had[by_user])
        return cls(starts, *events, data.user_numbers, data.item_numbers, row_order, excludes_own)

    @property
    def n_users(self) -> int:
        return len(self.starts) - 1

    def stops(self, rows: Rows) -> Longs:
        """Where each row's history ends among the events: at the first one of its user that is not before it."""
        users = self.row_users[rows]
        return np.searchsorted(self._keys, users.astype(np.int64) * self._width + self.row_order[rows])

    @cached_property
    def _width(self) -> int:
        return int(max(self.order.max(initial=0), self.row_order.max(initial=0))) + 1

    @cached_property
    def _keys(self) -> Longs:
        """One sorted key for all users; order is never negative."""
        return np.repeat(np.arange(self.n_users, dtype=np.int64), np.diff(self.starts)) * self._width + self.order

    def before(self, rows: Rows) -> History:
        """The history of each interaction, as of it."""
        history = gathered(self.items, self.starts[self.row_users[rows]], self.stops(rows))
        return without(history, self.row_items[rows]) if self.excludes_own else history

    def complete(self, users: npt.NDArray[np.integer[Any]]) -> History:
        """All that each user did; nothing of a user of number -1."""
        known = np.maximum(users, 0)
        start, stop = self.starts[known], self.starts[known + 1]
        return gathered(self.items, start, np.where(users < 0, start, stop))


def is_ordered(data: Dataset) -> bool:
    """Whether it can be said what came before a row: by time, or by the place in the file where the schema says so."""
    return "time" in data.interactions.columns or data.schema.interactions.ties != "strict"


def without(history: History, items: Ints) -> History:
    """Without one item of each user."""
    owners = np.repeat(np.arange(len(history)), history.lengths)
    is_kept = history.items != items[owners]
    starts = np.searchsorted(owners[is_kept], np.arange(len(history) + 1)).astype(np.int64)
    return History(starts, history.items[is_kept])


def visible_rows(split: Split, part: str) -> Rows:
    """The interactions that are history of a part's rows, as far as they are earlier.

    Training rows see training rows. Tested rows see also the rows that belong to no part, which a newcomer brings, and the test
    rows see validation rows; earlier test rows count only where the split is by time.
    """
    parts = [split.train]
    if part != "train":
        parts.append(split.unused)
    if part == "test":
        parts.append(split.validation)
    if split.name == "global-time":
        parts.append(split.test if part == "test" else split.validation if part == "validation" else split.train[:0])
    return np.sort(np.concatenate(parts))
