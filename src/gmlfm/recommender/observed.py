"""What users were observed to do since the data were collected."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from gmlfm.recommender.run_index import Ints, RunIndex
from gmlfm.runs.event_lines import ObservedRow, Time

_N_BUCKETS = 1_024
_TIME: Final = 2  # places in a row
_EVENT: Final = 3
Rows = tuple[ObservedRow, ...]
_Buckets = tuple[Mapping[str, Rows], ...]
_EMPTY: _Buckets = ({},) * _N_BUCKETS


@dataclass(frozen=True, eq=False)
class Observed:
    """Rows by user, each user's in the order of time, then of arrival. It never changes: rows make another one.

    A row without a time counts as its user's latest when it comes. Users are spread over buckets, of which a row copies one:
    some ten microseconds, however many rows there are (a million users: a bucket of a thousand).
    n: all rows; index: of the run, which knows the items' numbers.
    """

    index: RunIndex
    n: int = 0
    _buckets: _Buckets = _EMPTY
    _log: list[ObservedRow] | None = None  # the log that was followed, and how far
    _n_followed: int = 0

    def __contains__(self, user: str) -> bool:
        return user in self._buckets[_place(user)]

    def rows_of(self, user: str) -> Rows:
        """user, item, time and kind of event, as they were given; also of items that the catalogue does not have (yet)."""
        return self._buckets[_place(user)].get(user, ())

    def of(
        self, user: str, after: Time | None = None, events: Collection[str] | None = None
    ) -> tuple[tuple[int, Time | None], ...]:
        """Item number and time, oldest first, of the items of the catalogue.

        after: the user's last time in the data. A row that came without a time stands behind the latest known when it came, of
        the rows before it or `after`, and has none: it is later than these. events: of these kinds alone, and rows without a
        kind.
        """
        rows = self.rows_of(user)
        if not rows:
            return ()
        if after is not None:
            keys = _sort_keys(rows, after)
            rows = tuple(rows[place] for place in sorted(range(len(rows)), key=keys.__getitem__))
        numbers = self.index.item_numbers
        return tuple((numbers[row[1]], row[_TIME]) for row in rows if row[1] in numbers and _is_of(row, events))

    def items_of(self, user: str, events: Collection[str] | None = None) -> Ints:
        """Numbers of the items, of these kinds of events."""
        numbers = self.index.item_numbers if user in self else {}
        items = {numbers[row[1]] for row in self.rows_of(user) if row[1] in numbers and _is_of(row, events)}
        return np.array(sorted(items), np.int32)

    def rows(self) -> Iterator[ObservedRow]:
        """All of them, user after user; given to another one in this order, they are in the same order there."""
        for bucket in self._buckets:
            for rows in bucket.values():
                yield from rows

    def plus(self, rows: Iterable[ObservedRow]) -> tuple[Observed, list[ObservedRow]]:
        """With these rows, and those of them that are new: neither the same user, item, time and kind as another nor, without a
        time, the same as the user's latest."""
        by_user: dict[str, list[ObservedRow]] = {}
        for row in rows:
            by_user.setdefault(row[0], []).append(row)
        buckets: dict[int, dict[str, Rows]] = {}
        fresh: list[ObservedRow] = []
        for user, arrived in by_user.items():
            place = _place(user)
            bucket = buckets.get(place)
            if bucket is None:
                bucket = buckets[place] = dict(self._buckets[place])
            before = len(fresh)
            merged = _merged(bucket.get(user, ()), arrived, fresh)
            if len(fresh) > before:
                bucket[user] = merged
        if not fresh:
            return self, fresh
        return replace(self, n=self.n + len(fresh), _buckets=self._with(buckets)), fresh

    def without(self, user: str) -> Observed:
        """A user's rows are gone. The log is followed from its start, next time."""
        if user not in self:
            return self
        place = _place(user)
        bucket = {other: rows for other, rows in self._buckets[place].items() if other != user}
        return replace(self, n=self.n - len(self.rows_of(user)), _buckets=self._with({place: bucket}), _log=None)

    def less(self, rows: Iterable[ObservedRow]) -> Observed:
        """Without these rows, each as often as it is given. The log is followed from its start, next time."""
        left = Counter(rows)
        if not left:
            return self
        kept_rows = []
        for row in self.rows():
            if left[row]:
                left[row] -= 1
            else:
                kept_rows.append(row)
        return Observed(self.index).plus(kept_rows)[0]

    def beside(self, log: list[ObservedRow], forgotten: Iterable[str]) -> Observed:
        """What is held, and what a log that was written anew has beside it, which is followed from here on. Of users who were
        forgotten the log's rows alone."""
        n, held = len(log), self
        for user in forgotten:
            held = held.without(user)
        new, known = [], Counter(held.rows()) if n else Counter()
        for row in log[:n]:
            if known[row]:
                known[row] -= 1
            else:
                new.append(row)
        return replace(held.plus(new)[0], _log=log, _n_followed=n)

    def follows(self, log: list[ObservedRow]) -> bool:
        """Whether it is this log that was followed last, not written anew since."""
        return log is self._log

    def unfollowed(self) -> Observed:
        """The same rows. The log is followed from its start, next time."""
        return replace(self, _log=None)

    def users(self) -> Iterator[str]:
        for bucket in self._buckets:
            yield from bucket

    def over(self, index: RunIndex) -> Observed:
        """The same rows over another catalogue."""
        return replace(self, index=index)

    def following(self, log: list[ObservedRow]) -> Observed:
        """With what has come into a log since it was followed last; of another log, or one written anew, all its rows and none
        but these."""
        n = len(log)  # once: other threads add to it meanwhile, and what is noted as followed is never read again
        if log is not self._log:
            return Observed(self.index).plus(log[:n])[0].noting(log, n)
        if n == self._n_followed:
            return self
        return self.plus(log[self._n_followed : n])[0].noting(log, n)

    def noting(self, log: list[ObservedRow], n: int) -> Observed:
        """The first n rows of the log are these rows and no others."""
        return replace(self, _log=log, _n_followed=n)

    def _with(self, changed: Mapping[int, Mapping[str, Rows]]) -> _Buckets:
        buckets = list(self._buckets)
        for place, bucket in changed.items():
            buckets[place] = bucket
        return tuple(buckets)


def _place(user: str) -> int:
    return hash(user) % _N_BUCKETS


def _is_of(row: ObservedRow, events: Collection[str] | None) -> bool:
    return events is None or row[_EVENT] is None or row[_EVENT] in events


def _merged(rows: Rows, arrived: Sequence[ObservedRow], fresh: list[ObservedRow]) -> Rows:
    """A user's rows with those that arrived; the new ones are added to `fresh`, too."""
    known: Collection[ObservedRow] = rows if len(arrived) == 1 else set(rows)
    latest_time: Time = next((row[_TIME] for row in reversed(rows) if row[_TIME] is not None), -math.inf)
    latest_row = rows[-1] if rows else None
    new: list[ObservedRow] = []
    keys: list[Time] = []
    in_order = True
    for row in arrived:
        time = row[_TIME]
        if row == latest_row if time is None else row in known:
            continue
        if time is None or time >= latest_time:
            latest_row = row
        in_order &= time is None or time >= latest_time
        keys.append(latest_time if time is None else time)
        latest_time = max(latest_time, keys[-1])
        new.append(row)
        if isinstance(known, set):
            known.add(row)
    fresh += new
    if in_order:
        return (*rows, *new)
    together, keys = [*rows, *new], [*_sort_keys(rows, -math.inf), *keys]
    return tuple(together[place] for place in sorted(range(len(together)), key=keys.__getitem__))


def _sort_keys(rows: Rows, latest: Time) -> list[Time]:
    """Each row's time; without one, the latest of those before it and `latest`."""
    keys: list[Time] = []
    for row in rows:
        time = row[_TIME]
        keys.append(latest if time is None else time)
        latest = max(latest, keys[-1])
    return keys
