"""What a fitted run knows of its users and items, looked up once: with a million items, finding it again costs more than a
ranking."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from gmlfm.evaluation.protocols import PositivesByUser
from gmlfm.fitting import FittedRun
from gmlfm.fitting.run import learned_rows

Ints = npt.NDArray[np.int32]


class RunIndex:
    def __init__(self, fitted: FittedRun) -> None:
        self.fitted = fitted

    @cached_property
    def had(self) -> PositivesByUser:
        return PositivesByUser(self.fitted.data)

    @cached_property
    def trained_users(self) -> npt.NDArray[np.bool_]:
        """By number: was the user met in training? The last place is for -1, somebody unknown."""
        met = np.zeros(len(self.fitted.data.users) + 1, bool)
        instances = self.fitted.instances
        met[self.fitted.data.user_numbers[self._learned] if instances is None else instances.users[self._learned]] = True
        return met

    @cached_property
    def popularity(self) -> npt.NDArray[np.float32]:
        """By item: the share of users who chose it."""
        data = self.fitted.data
        rows = self._learned if self.fitted.instances is None else data.positive_rows
        counts = np.bincount(data.item_numbers[rows], minlength=len(data.items))
        return (counts / max(len(data.seen_users), 1)).astype(np.float32)

    @cached_property
    def candidates(self) -> Ints:
        """Items that interactions name, and those that came without any."""
        here = np.zeros(len(self.fitted.data.items), bool)
        here[self.fitted.data.seen_items] = True
        here[np.array(self.fitted.extra_items, np.int64)] = True
        return np.flatnonzero(here).astype(np.int32)

    @cached_property
    def _learned(self) -> npt.NDArray[np.int64]:
        return learned_rows(self.fitted.split, self.fitted.regime)
