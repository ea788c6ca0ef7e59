"""Meetings of users and items by which training imitates newcomers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gmlfm.data.dataset import Rows
from gmlfm.data.encoding import Encoded
from gmlfm.training.sampling.groups import Batch, IdRows, Ints, user_side_of

_MOST_USERS = 8192  # whose latest choices are shown in an epoch
_MOST_ITEMS, _FEWEST_USERS = 60, 32  # of a grid, where a step has room for so many


class Grid(NamedTuple):
    """Steps in which some users meet the same items, group after group: n_users users, `rows` groups of each."""

    n_users: int
    rows: int

    @classmethod
    def within(cls, n_groups: int, group: int) -> Grid:
        """The one that fills a step of so many groups."""
        rows = max(1, min(_MOST_ITEMS // group, n_groups // _FEWEST_USERS))
        return cls(n_groups // rows, rows)


@dataclass(frozen=True)
class ByUser:
    """Places of training rows, user after user, the rows of each in the order of time."""

    places: Rows
    starts: Rows
    counts: Rows

    @classmethod
    def of(cls, users: Ints, times: npt.NDArray[Any] | None) -> ByUser:
        """times: anything that grows with time; without it, rows come as they are listed."""
        places = np.argsort(users, kind="stable") if times is None else np.lexsort((times, users))
        starts = np.flatnonzero(np.diff(users[places], prepend=-1))
        return cls(places, starts, np.diff(np.append(starts, len(users))))

    def one_each(self, chosen: Rows, rng: np.random.Generator) -> Rows:
        """One row of each chosen user, all of hers alike."""
        found: Rows = self.places[self.starts[chosen] + rng.integers(0, self.counts[chosen])]
        return found

    def latest(self, chosen: Rows) -> Rows:
        found: Rows = self.places[self.starts[chosen] + self.counts[chosen] - 1]
        return found


class ColdStartSampler:
    """Drawn for one epoch. `hide` is how many there should be beside the training groups, as a share of them."""

    def __init__(
        self,
        users: Ints,
        rows: Rows,
        encoded: Encoded,
        ids: IdRows,
        by_user: ByUser,
        show: Callable[[Rows, np.random.Generator], Batch],
        group: int,
        cold_start_rate: float,
        rng: np.random.Generator,
        odds: float | None = None,
    ) -> None:
        """show: the training rows at some places as a batch; group: items beside a user.

        odds: that an item nobody chose yet, met in a training group, is the one chosen; None where that cannot be told.
        """
        self.odds = odds
        self.ids, self.cold_start_rate, self.by_user = ids, cold_start_rate, by_user
        self._users, self._rows, self._encoded, self._show, self.group = users, rows, encoded, show, group
        self._rng = rng
        self._items = np.flatnonzero(ids.trained_items)

    def at_random(self, n_steps: int, grid: Grid) -> Batch:
        """In each step users, all alike, in the context of one of their rows, with items that were chosen at all, all alike."""
        rng, (n_users, rows) = self._rng, grid
        places = self.by_user.one_each(rng.integers(0, len(self.by_user.starts), n_steps * n_users), rng)
        places = places.repeat(rows)
        user_side = user_side_of(self._encoded, self._users[places], self._rows[places])
        drawn = rng.choice(self._items, (n_steps, 1, rows, self.group))
        items = np.broadcast_to(drawn, (n_steps, n_users, rows, self.group)).reshape(-1, self.group)
        item_side = self._encoded.item
        nothing = np.zeros(items.shape, np.float32)
        return Batch(user_side.ids, user_side.values, item_side.ids[items], item_side.values[items], nothing, None)

    def latest(self) -> Batch:
        """What some users chose last, as training shows it, their ids hidden.

        An item without a positive stands at the unknown row, without its attributes: for a new user, too, it is what nobody
        has chosen yet, and what it is like shall not count against others that are like it.
        """
        n = len(self.by_user.starts)
        chosen = np.sort(self._rng.choice(n, min(n, _MOST_USERS), replace=False))
        batch = self._show(self.by_user.latest(chosen), self._rng)
        user_ids, item_ids, item_x = batch.user_ids.copy(), batch.item_ids.copy(), batch.item_x.copy()
        user_ids[:, 0] = self.ids.unknown_user
        untrained = item_ids[..., 0] == self.ids.negative_only_row
        item_ids[untrained, 0] = self.ids.unknown_item
        item_x[untrained, 1:] = 0.0
        return replace(batch, user_ids=user_ids, item_ids=item_ids, item_x=item_x)
