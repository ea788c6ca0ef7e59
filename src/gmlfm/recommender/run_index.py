"""What a fitted run holds of its users and items, looked up once: with a million items, finding it again costs more than a
ranking."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from gmlfm.evaluation.protocols import PositivesByUser
from gmlfm.fitting import FittedRun
from gmlfm.models.base import UserSide
from gmlfm.recommender.memo import Memo
from gmlfm.recommender.stock import Stock
from gmlfm.retrieval import Cap
from gmlfm.runs.event_lines import ObservedRow

Ints = npt.NDArray[np.int32]
# The item's number, the time, and whether it was had: a target, or merged into one.
TimedRow = tuple[int, int | float | None, bool]
_MOST_FILTERS, _MOST_USERS = 16, 16_384  # that are kept


@dataclass(frozen=True, eq=False)
class Offer:
    """What can be recommended by one stock, and what is to be said of it."""

    stock: Stock
    items: Ints
    note: str


@dataclass(frozen=True, eq=False)
class KnownUser:
    """A user without a context, as long as `rows` are what they were observed to do: their number, what they had, and what a
    model reads of them."""

    rows: tuple[ObservedRow, ...]
    numbers: npt.NDArray[np.int64]
    had: list[Ints]
    side: UserSide


class RunIndex:
    """offers: by kind of candidates; filtered: by that and a filter, with the offer that they are of; caps: by field, at most
    one of a group; users: by id; kinds_told: the kinds of events that were warned of. All of it goes with the run."""

    def __init__(self, run: FittedRun) -> None:
        self.run = run
        self.offers = Memo[Offer](2)
        self.filtered = Memo[tuple[Offer, Ints]](_MOST_FILTERS)
        self.caps = Memo[Cap](_MOST_FILTERS)
        self.users = Memo[KnownUser](_MOST_USERS)
        self.kinds_told: set[str] = set()

    @cached_property
    def positives(self) -> PositivesByUser:
        return PositivesByUser(self.run.data)

    @cached_property
    def trained_users(self) -> npt.NDArray[np.bool_]:
        """By number: was the user met in training? The last place is for -1, a user that is not known."""
        is_met = np.zeros(len(self.run.data.users) + 1, bool)
        rows, instances = self.run.learned_rows, self.run.instances
        is_met[self.run.data.user_numbers[rows] if instances is None else instances.users[rows]] = True
        return is_met

    @cached_property
    def popularity(self) -> npt.NDArray[np.float32]:
        """By item: the share of users who chose it."""
        data = self.run.data
        rows = self.run.learned_rows if self.run.instances is None else data.positive_rows
        counts = np.bincount(data.item_numbers[rows], minlength=len(data.items))
        return (counts / max(len(data.seen_users), 1)).astype(np.float32)

    @cached_property
    def candidates(self) -> Ints:
        """Items that interactions name, and those that came without any."""
        is_candidate = np.zeros(len(self.run.data.items), bool)
        is_candidate[self.run.data.seen_items] = True
        is_candidate[np.array(self.run.extra_items, np.int64)] = True
        return np.flatnonzero(is_candidate).astype(np.int32)

    @property
    def item_numbers(self) -> dict[str, int]:
        """By id, as text."""
        return self.run.encoder.item_places

    def user_numbers(self, users: Iterable[str]) -> dict[str, int]:
        """By id, as text; -1 where the data do not have them."""
        ids = list(users)
        return dict(zip(ids, self.run.encoder.user_numbers(ids).tolist(), strict=True))

    def timed_rows(self, user: int) -> set[TimedRow]:
        """What the data have of a user, rows that are history alone included."""
        data = self.run.data
        if "time" not in data.interactions.columns:
            return set()
        rows = self.rows_of_user(user)
        targets = zip(data.item_numbers[rows].tolist(), data.interactions["time"][rows].to_list(), strict=True)
        known: set[TimedRow] = {(item, time, True) for item, time in targets}
        if data.history_rows.height:  # which may lack a time otherwise
            order, starts = self._history_by_user
            others = data.history_rows[order[starts[user] : starts[user + 1]]]
            known.update(others.select("item", "time", "is_had").rows())
        return known

    @cached_property
    def _history_by_user(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        return _by_user(self.run.data.history_rows["user"].to_numpy(), len(self.run.data.users))

    def rows_of_user(self, user: int) -> npt.NDArray[np.int64]:
        """The numbers of a user's rows in the data."""
        order, starts = self._rows_by_user
        return order[starts[user] : starts[user + 1]]

    @cached_property
    def _rows_by_user(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The rows of all users, one after another, and where each user's begin."""
        return _by_user(self.run.data.user_numbers, len(self.run.data.users))

    @cached_property
    def latest_time(self) -> int | float | None:
        """Of the data's rows, those that are history alone included; None where they have no times."""
        frames = (self.run.data.interactions, self.run.data.history_rows)
        latest = [rows["time"].max() for rows in frames if "time" in rows.columns]
        times = [time for time in latest if isinstance(time, int | float)]
        return max(times, default=None)


def _by_user(users: Ints, n_users: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Rows of users one after another, and where each user's begin."""
    order = np.argsort(users, kind="stable")
    return order, np.searchsorted(users[order], np.arange(n_users + 1))


def kinds_in_data(kind: str | None, targets: Collection[str] | None) -> tuple[bool, ...]:
    """Of an observed row of a kind of event: as a row of the data, was it had (True), or did it count as history alone (False)?
    One without a kind may be either."""
    if kind is None:
        return True, False
    return (targets is None or kind in targets,)
