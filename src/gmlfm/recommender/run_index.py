"""What a fitted run holds of its users and items, looked up once: with a million items, finding it again costs more than a
ranking."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import numpy as np
import numpy.typing as npt

from gmlfm.evaluation.protocols import PositivesByUser
from gmlfm.fitting import FittedRun

Ints = npt.NDArray[np.int32]
_FEW = 8  # ids that are looked for one by one, instead of joining them with all there are


class RunIndex:
    def __init__(self, run: FittedRun) -> None:
        self.run = run

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

    @cached_property
    def item_numbers(self) -> dict[str, int]:
        """By id, as text."""
        return {item: number for number, item in enumerate(self.run.encoder.item_ids.to_list())}

    def user_numbers(self, users: Iterable[str]) -> dict[str, int]:
        """By id, as text; -1 where the data do not have them."""
        ids, encoder = list(users), self.run.encoder
        if len(ids) <= _FEW:
            places = ((user, encoder.user_ids.index_of(user)) for user in ids)
            return {user: -1 if place is None else int(place) for user, place in places}
        return dict(zip(ids, encoder.user_numbers(ids).tolist(), strict=True))

    def timed_rows(self, user: int) -> set[tuple[int, float]]:
        """What the data have of a user: item numbers, each with its time."""
        data = self.run.data
        if "time" not in data.interactions.columns:
            return set()
        rows = self.rows_of_user(user)
        return set(zip(data.item_numbers[rows].tolist(), data.interactions["time"][rows].to_list(), strict=True))

    def rows_of_user(self, user: int) -> npt.NDArray[np.int64]:
        """The numbers of a user's rows in the data."""
        order, starts = self._rows_by_user
        return order[starts[user] : starts[user + 1]]

    @cached_property
    def _rows_by_user(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The rows of all users, one after another, and where each user's begin."""
        data = self.run.data
        order = np.argsort(data.user_numbers, kind="stable")
        return order, np.searchsorted(data.user_numbers[order], np.arange(len(data.users) + 1))

    @cached_property
    def latest_time(self) -> int | float | None:
        """Of the data's rows; None where they have no times."""
        interactions = self.run.data.interactions
        latest = interactions["time"].max() if "time" in interactions.columns else None
        assert latest is None or isinstance(latest, int | float)
        return latest
