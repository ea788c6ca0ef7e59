"""What every split works on and gives: the task's rows in the order of time, and a part for each of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from gmlfm.data.dataset import Dataset, Rows, Task
from gmlfm.errors import DataError, OptionError

TRAIN, VALIDATION, TEST, UNUSED = 0, 1, 2, 3


@dataclass(frozen=True)
class SplitView:
    """The task's rows as columns, in the order of time, then of the file."""

    data: Dataset
    rows: Rows
    users: npt.NDArray[np.int32]
    items: npt.NDArray[np.int32]
    rng: np.random.Generator
    task: Task = "topn"

    def times(self, name: str) -> npt.NDArray[Any]:
        if "time" not in self.data.interactions.columns:
            raise DataError(
                f"the split '{name}' needs times, but dataset '{self.data.name}' declares none; set [interactions] time."
            )
        times = self.data.interactions["time"]
        if times.null_count():
            raise DataError(f"the split '{name}' needs a time in every row; {times.null_count():,} rows have none.")
        return times.to_numpy()[self.rows]


@dataclass
class Assignment:
    """A part for each row of a view: TRAIN, VALIDATION, TEST or UNUSED.

    Candidate lists are aligned with the part's rows in ascending order. `options`: what is recorded of the caller's options
    where these themselves cannot be.
    """

    parts: npt.NDArray[np.int8]
    groups: npt.NDArray[np.int8] | None = None
    group_names: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)
    validation_candidates: npt.NDArray[np.int32] | None = None
    test_candidates: npt.NDArray[np.int32] | None = None
    options: dict[str, str] | None = None


def places_of_user(users: npt.NDArray[np.integer[Any]]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Each row's place among the rows of its user, counted from the first and from the last, both from 0."""
    by_user = np.argsort(users, kind="stable")
    starts = np.flatnonzero(np.diff(users[by_user], prepend=-1))
    lengths = np.diff(np.append(starts, len(users)))
    from_first, from_last = np.empty(len(users), np.int64), np.empty(len(users), np.int64)
    from_first[by_user] = np.arange(len(users)) - np.repeat(starts, lengths)
    from_last[by_user] = np.repeat(lengths, lengths) - 1 - from_first[by_user]
    return from_first, from_last


def check_shares(**shares: float) -> None:
    for name, share in shares.items():
        if not 0 <= share < 1:
            raise OptionError(f"{name} is {share}; expected a share of at least 0 and below 1.")
    if sum(shares.values()) >= 1:
        names = " + ".join(shares)
        raise OptionError(f"{names} is {sum(shares.values()):g}; their sum must stay below 1, or nothing is left to train on.")
