"""What users did before: their events in the order of time, and the history as of a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from gmlfm.data.dataset import Dataset, Rows
from gmlfm.data.known_rows import are_known
from gmlfm.data.splits import Split
from gmlfm.data.times import in_order

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]


@dataclass(frozen=True)
class History:
    """What N users did before, oldest first: the items of user n are items[starts[n]:starts[n + 1]].

    starts: (N + 1,); items: (M,); order: (M,), ascending within a user, the same number for rows of one time; None where each
    row is later than the one before it.
    """

    starts: Longs
    items: Ints
    order: Longs | None = None

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
        rows = slice(starts[0], starts[-1])
        return History(starts - starts[0], self.items[rows], None if self.order is None else self.order[rows])

    def latest(self, length: int) -> History:
        """Of each user at most so many, the latest ones."""
        if len(self) == 1:
            n = len(self.items)
            rows = slice(max(0, n - length), n)
            return History(np.array([0, n - rows.start]), self.items[rows], None if self.order is None else self.order[rows])
        return gathered(self.items, np.maximum(self.starts[:-1], self.starts[1:] - length), self.starts[1:], self.order)

    def is_later(self, user: int) -> npt.NDArray[np.bool_]:
        """Of each of a user's rows, whether it is later than the one before it."""
        result = np.ones(int(self.lengths[user]), bool)
        if self.order is not None:
            result[1:] = np.diff(self.order[self.starts[user] : self.starts[user + 1]]) > 0
        return result

    @property
    def ages(self) -> Longs:
        """(M,): how many rows of its user are later than each row. Rows of one time share an age."""
        owners, places = np.repeat(np.arange(len(self)), self.lengths), np.arange(len(self.items))
        latest_alike = places
        if self.order is not None:
            is_latest = np.append((np.diff(self.order) != 0) | (np.diff(owners) != 0), True)[: len(places)]
            latest = np.flatnonzero(is_latest)
            latest_alike = latest[np.searchsorted(latest, places)]
        ages: Longs = self.starts[1:][owners] - 1 - latest_alike
        return ages


def gathered(items: Ints, start: Longs, stop: Longs, order: Longs | None = None) -> History:
    """items[start[n]:stop[n]] of each n, one after another, and so their order."""
    places, starts = ranges(start, stop)
    return History(starts, items[places], None if order is None else order[places])


def ranges(start: Longs, stop: Longs) -> tuple[Longs, Longs]:
    """start[n], start[n] + 1, ..., stop[n] - 1 of each n, one after another; and where each n begins among them, (N + 1,)."""
    lengths = stop - start
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return np.arange(starts[-1]) + np.repeat(start - starts[:-1], lengths), starts


def grid(start: Longs, stop: Longs) -> Longs:
    """start[n], start[n] + 1, ..., stop[n] - 1 in row n, (N, longest); shorter rows repeat their last place."""
    longest = int((stop - start).max(initial=0))
    places: Longs = np.minimum(start[:, None] + np.arange(longest), np.maximum(stop[:, None] - 1, 0))
    return places


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
    times: npt.NDArray[Any] | None = field(default=None, repr=False)  # of each event, where the data have times

    @classmethod
    def of(cls, data: Dataset, visible: Rows | None = None, *, ordered: bool | None = None) -> Histories:
        """visible: the interactions that may be seen, all without it. Rows that are history alone are always among them, but
        where the row that they were merged into is held out, it is not told that the user had the item: that it is no
        negative would tell it from all others. ordered: whether anything comes before anything, where that is known of more
        rows than these."""
        row_order, extra_order, extra = data.history_order, data.history_rows_order, data.history_rows
        rows = np.flatnonzero(data.counts_as_history) if visible is None else visible[data.counts_as_history[visible]]
        users = np.concatenate([data.user_numbers[rows], extra["user"].to_numpy()])
        items = np.concatenate([data.item_numbers[rows], extra["item"].to_numpy()])
        order = np.concatenate([row_order[rows], extra_order])
        of_extra = extra["is_had"].to_numpy()
        if visible is not None and of_extra.any():
            of_extra = of_extra & ~_are_held_out(data, visible, extra)
        is_had = np.concatenate([np.ones(len(rows), bool), of_extra])
        # Rows of one time stay in the order of the file: which of them is the latest must not depend on the sort.
        by_user = np.lexsort((order, users))
        starts = np.searchsorted(users[by_user], np.arange(len(data.users) + 1))
        spec = data.schema.interactions
        # Merged pairs have one row, but rows that count as history alone, and another one in each context.
        excludes_own = spec.repeats == "merge" and (len(extra_order) > 0 or len(spec.context) > 0)
        if not (is_ordered(data) if ordered is None else ordered):
            row_order, excludes_own = np.full(len(row_order), int(order.max(initial=0)) + 1), True
        is_had &= spec.repeats == "merge"
        events = (items[by_user].astype(np.int32), order[by_user], is_had[by_user])
        times = None
        if "time" in data.interactions.columns:
            columns = [data.interactions["time"][rows], *([extra["time"]] if extra.height else [])]
            times = in_order(pl.concat(columns))[by_user]
        return cls(starts, *events, data.user_numbers, data.item_numbers, row_order, excludes_own, times)

    @classmethod
    def had(cls, data: Dataset, visible: Rows, *, ordered: bool | None = None) -> Histories | None:
        """The same with targets of kinds that do not count as history, which users had all the same; None where all do."""
        if "is_history" not in data.interactions.columns:
            return None
        return cls.of(replace(data, interactions=data.interactions.drop("is_history")), visible, ordered=ordered)

    def times_of(self, user: int) -> npt.NDArray[Any]:
        """Of a user's events, which ascend; empty without times, and for a user of number -1."""
        if self.times is None or user < 0:
            return np.empty(0)
        return self.times[self.starts[user] : self.starts[user + 1]]

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
        history = gathered(self.items, self.starts[self.row_users[rows]], self.stops(rows), self.order)
        return without(history, self.row_items[rows]) if self.excludes_own else history

    @classmethod
    def of_other(cls, data: Dataset, other: Dataset, numbers: npt.NDArray[np.integer[Any]]) -> Histories:
        """What the rows of other data see: the rows before them, in both, once where both have them. Without times in both, the
        rows of `data` alone.

        numbers: by user of the other data, their number in `data`, -1 for none. Both number the same items.
        """
        n_other = len(other.users)
        of_user = n_other + np.arange(len(data.users))
        of_user[numbers[numbers >= 0]] = np.flatnonzero(numbers >= 0)
        ids = pl.concat([other.users.ids, data.users.ids.alias(other.users.ids.name)])
        has_times = all("time" in both.interactions.columns for both in (data, other))
        own_rows, own_extra = (_events(rows, of_user, 0, has_times) for rows in (data.interactions, data.history_rows))
        rows, extra = (
            _events(given, None, data.n_interactions, has_times) for given in (other.interactions, other.history_rows)
        )

        def joined(own_extra: pl.DataFrame) -> Dataset:
            frames = [pl.concat(both, how="vertical_relaxed") for both in ((own_rows, rows), (own_extra, extra))]
            if has_times:
                scale = pl.concat([frame.clear()["time"].to_frame() for frame in frames], how="vertical_relaxed").schema
                frames = [frame.cast(scale) for frame in frames]
            return replace(other, interactions=frames[0], history_rows=frames[1], users=replace(other.users, ids=ids))

        both, visible = joined(own_extra), np.arange(data.n_interactions, dtype=np.int64)
        if is_ordered(both):
            is_repeated, is_repeated_extra = (_are_in(given, rows, extra, has_times) for given in (own_rows, own_extra))
            both = joined(own_extra.filter(~is_repeated_extra))
            visible = np.concatenate([visible[~is_repeated], np.arange(data.n_interactions, both.n_interactions)])
        histories, of_rows = cls.of(both, visible), slice(data.n_interactions, None)
        return replace(
            histories,
            row_users=histories.row_users[of_rows],
            row_items=histories.row_items[of_rows],
            row_order=histories.row_order[of_rows],
            excludes_own=histories.excludes_own or other.schema.interactions.repeats == "merge",
        )

    def complete(self, users: npt.NDArray[np.integer[Any]]) -> History:
        """All that each user did; nothing of a user of number -1."""
        if len(users) == 1:
            start, stop = (0, 0) if users[0] < 0 else (int(self.starts[users[0]]), int(self.starts[users[0] + 1]))
            return History(np.array([0, stop - start]), self.items[start:stop], self.order[start:stop])
        known = np.maximum(users, 0)
        start, stop = self.starts[known], self.starts[known + 1]
        return gathered(self.items, start, np.where(users < 0, start, stop), self.order)


def _are_held_out(data: Dataset, visible: Rows, rows: pl.DataFrame) -> npt.NDArray[np.bool_]:
    """Of rows that were merged: is a positive row of their pair not among the visible ones?"""
    hidden, items = np.setdiff1d(data.positive_rows, visible), rows["item"].to_numpy()
    n_items = 1 + int(max(data.item_numbers.max(initial=0), items.max(initial=0)))
    pairs = data.user_numbers[hidden].astype(np.int64) * n_items + data.item_numbers[hidden]
    return np.isin(rows["user"].to_numpy().astype(np.int64) * n_items + items, pairs)


def _events(rows: pl.DataFrame, users: Longs | None, start: int, has_times: bool) -> pl.DataFrame:
    """What decides which rows are whose history, alike for all data. users: under other numbers; start: of rows before them."""
    numbers, always = rows["user"].to_numpy(), pl.Series([True]).new_from_index(0, rows.height)
    columns = [pl.Series("user", numbers if users is None else users[numbers], pl.Int32()), rows["item"]]
    columns += [rows[name] if name in rows.columns else always.alias(name) for name in ("positive", "is_history", "is_had")]
    if "before" in rows.columns:
        columns.append(rows["before"] + start)
    if has_times:
        columns.append(rows["time"] if "time" in rows.columns else pl.Series("time", [], pl.Int64()))
    return pl.DataFrame(columns)


def _are_in(given: pl.DataFrame, rows: pl.DataFrame, extra: pl.DataFrame, has_times: bool) -> npt.NDArray[np.bool_]:
    """Which of the given events are among those of other data: had by their users among what is had there, others among the
    others."""
    keys = ["user", "item", "is_had", *(["time"] if has_times else [])]
    old = pl.concat([rows.select(keys), extra.select(keys)], how="vertical_relaxed")
    return are_known(old, given.select(keys))


def is_ordered(data: Dataset) -> bool:
    """Whether it can be said what came before a row: by times that differ, or by the file's order where the schema says so."""
    if data.schema.interactions.ties != "strict":
        return True
    latest = max(int(order.max(initial=0)) for order in (data.history_order, data.history_rows_order))
    return "time" in data.interactions.columns and latest > 0


def without(history: History, items: Ints) -> History:
    """Without one item of each user."""
    owners = np.repeat(np.arange(len(history)), history.lengths)
    is_kept = history.items != items[owners]
    starts = np.searchsorted(owners[is_kept], np.arange(len(history) + 1)).astype(np.int64)
    return History(starts, history.items[is_kept], None if history.order is None else history.order[is_kept])


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
