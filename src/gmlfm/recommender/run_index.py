"""What a fitted run holds of its users and items, looked up once: with a million items, finding it again costs more than a
ranking."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from gmlfm.evaluation.protocols import PositivesByUser
from gmlfm.fitting import FittedRun

Ints = npt.NDArray[np.int32]


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
