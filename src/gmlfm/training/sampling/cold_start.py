"""Batches by which training imitates newcomers: users and items whose ids it hides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gmlfm.data.dataset import Rows
from gmlfm.data.encoding import Encoded
from gmlfm.training.sampling.groups import Batch, IdRows, Ints

_MOST_USERS = 8192  # whose latest choices are shown in an epoch
_MOST_RANKED, _FEWEST_RANKINGS, _MOST_RANKINGS = 1000, 16, 256  # items and users of draw_rankings
_MOST_ITEMS, _FEWEST_USERS = 60, 32  # of a grid, where a step has room for so many


class Grid(NamedTuple):
    """Steps in which some users are scored with the same items, group after group: `n_groups` groups of each user."""

    n_users: int
    n_groups: int

    @classmethod
    def within(cls, groups_per_step: int, group: int) -> Grid:
        """The one that fills a step of so many groups."""
        n_groups = max(1, min(_MOST_ITEMS // group, groups_per_step // _FEWEST_USERS))
        return cls(groups_per_step // n_groups, n_groups)


@dataclass(frozen=True)
class RowsByUser:
    """Places of training rows, user after user, the rows of each in the order of time."""

    places: Rows
    starts: Rows
    counts: Rows

    @classmethod
    def sort(cls, users: Ints, times: npt.NDArray[Any] | None) -> RowsByUser:
        """times: anything that grows with time; without it, rows come as they are listed."""
        places = np.argsort(users, kind="stable") if times is None else np.lexsort((times, users))
        starts = np.flatnonzero(np.diff(users[places], prepend=-1))
        return cls(places, starts, np.diff(np.append(starts, len(users))))

    def draw_row(self, users: Rows, rng: np.random.Generator) -> Rows:
        """One row of each of the users, all of theirs alike."""
        rows: Rows = self.places[self.starts[users] + rng.integers(0, self.counts[users])]
        return rows

    def latest_row(self, users: Rows) -> Rows:
        rows: Rows = self.places[self.starts[users] + self.counts[users] - 1]
        return rows


class ColdStartSampler:
    """Drawn for one epoch. rate: how many cold-start groups there should be for each group of training."""

    def __init__(
        self,
        users: Ints,
        items: Ints,
        rows: Rows,
        encoded: Encoded,
        ids: IdRows,
        by_user: RowsByUser,
        show: Callable[[Rows, np.random.Generator], Batch],
        group: int,
        rate: float,
        rng: np.random.Generator,
    ) -> None:
        """show: the training rows at some places as a batch; group: items beside a user."""
        self.ids, self.rate, self.by_user, self.group = ids, rate, by_user, group
        self._users, self._rows, self._encoded, self._show, self._rng = users, rows, encoded, show, rng
        self._items, self._chosen = np.flatnonzero(ids.trained_items), items

    def draw_grid(self, n_steps: int, grid: Grid) -> Batch:
        """In each step users, all alike, in the context of one of their rows, with items that were chosen at all, all alike."""
        rng, (n_users, n_groups) = self._rng, grid
        places = self.by_user.draw_row(rng.integers(0, len(self.by_user.starts), n_steps * n_users), rng).repeat(n_groups)
        drawn = rng.choice(self._items, (n_steps, 1, n_groups, self.group))
        items = np.broadcast_to(drawn, (n_steps, n_users, n_groups, self.group)).reshape(-1, self.group)
        return self._unlabelled(places, items)

    @property
    def n_items(self) -> int:
        """Items that were chosen at all."""
        return len(self._items)

    def draw_rankings(self) -> tuple[Batch, npt.NDArray[np.bool_]]:
        """Some users, each beside the same known items, drawn without replacement; and which of these each has chosen.

        About a quarter as many pairs as an epoch has instances.
        """
        rng = self._rng.spawn(1)[0]
        items = rng.permutation(self._items)[:_MOST_RANKED]
        n_users = int(np.clip(len(self._users) * self.group // (4 * max(len(items), 1)), _FEWEST_RANKINGS, _MOST_RANKINGS))
        users = rng.permutation(len(self.by_user.starts))[:n_users]
        places = self.by_user.draw_row(users, rng)
        is_owned = np.zeros((len(users), len(self.ids.trained_items)), bool)
        for row, user in enumerate(users):
            start = self.by_user.starts[user]
            is_owned[row, self._chosen[self.by_user.places[start : start + self.by_user.counts[user]]]] = True
        return self._unlabelled(places, np.broadcast_to(items, (len(users), len(items)))), is_owned[:, items]

    def _unlabelled(self, places: Rows, items: npt.NDArray[Any]) -> Batch:
        users, catalogue = self._encoded.user_side(self._users[places], self._rows[places]), self._encoded.item
        no_labels = np.zeros(items.shape, np.float32)
        return Batch(users.ids, users.values, catalogue.ids[items], catalogue.values[items], no_labels, None)

    def latest(self) -> Batch:
        """What some users chose last, as training shows it, their ids hidden.

        An item without a positive stands at the unknown row, without its attributes: for a new user, too, it is what nobody
        has chosen yet, and what it is like shall not count against others that are like it.
        """
        n_users = len(self.by_user.starts)
        users = np.sort(self._rng.choice(n_users, min(n_users, _MOST_USERS), replace=False))
        batch = self._show(self.by_user.latest_row(users), self._rng)
        user_ids, item_ids, item_x = batch.user_ids.copy(), batch.item_ids.copy(), batch.item_x.copy()
        user_ids[:, 0] = self.ids.unknown_user
        is_untrained = item_ids[..., 0] == self.ids.negative_only_row
        item_ids[is_untrained, 0] = self.ids.unknown_item
        item_x[is_untrained, 1:] = 0.0
        return replace(batch, user_ids=user_ids, item_ids=item_ids, item_x=item_x)
