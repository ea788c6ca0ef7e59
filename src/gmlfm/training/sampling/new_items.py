"""How often what is chosen is new, from training rows alone, some of which are taken as the future of the others.

They are taken as the split takes what it holds out: each user's last row (leave-one-out), or else the latest tenth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gmlfm.training.sampling.negatives import TrainingNegatives

LATEST_SHARE = 0.1
MOST_ROWS = 10_000  # whose candidates are drawn, where they depend on time


@dataclass(frozen=True)
class NewItems:
    """Of the training rows taken as the future: items that no other row names are new in it.

    of_choices: the share of its choices that are of new items; of_candidates: the share of new ones among what could be chosen.
    Held-out rows have no part in it, so that it is the same rule whatever is trained on.
    """

    of_choices: float
    of_candidates: float

    @property
    def is_informative(self) -> bool:
        """Whether some choices were of new items, and not all there was to choose was new."""
        return self.of_choices > 0 and 0 < self.of_candidates < 1

    @classmethod
    def from_first_rows(
        cls, first_times: npt.NDArray[Any], counts: npt.NDArray[np.integer[Any]], cut: Any, n_latest: int
    ) -> NewItems:
        """first_times: of each item's first training row; counts: its training rows; cut: the last time before the tenth,
        n_latest: the rows after it. Candidates are the items with a training row."""
        is_trained = counts > 0
        is_new = is_trained & (first_times > cut)
        return cls(float(counts[is_new].sum() / max(n_latest, 1)), float(is_new.sum() / max(is_trained.sum(), 1)))

    @classmethod
    def estimate(cls, items: npt.NDArray[np.int32], times: npt.NDArray[Any], n_items: int) -> NewItems:
        """items, times: of the training rows; times may be anything that grows with time."""
        cut = latest_cut(times)
        first_times = np.full(n_items, times.max(initial=0), times.dtype)
        np.minimum.at(first_times, items, times)
        return cls.from_first_rows(first_times, np.bincount(items, minlength=n_items), cut, int((times > cut).sum()))

    @classmethod
    def of_last_rows(cls, n_last: npt.NDArray[np.integer[Any]], n_rows: npt.NDArray[np.integer[Any]]) -> NewItems:
        """n_last: by item, in how many users' last rows it is; n_rows: in how many training rows."""
        is_new = (n_last > 0) & (n_last == n_rows)
        return cls(float(n_last[is_new].sum() / max(n_last.sum(), 1)), float(is_new.sum() / max((n_rows > 0).sum(), 1)))

    def among(self, items: npt.NDArray[np.int32], times: npt.NDArray[Any], negatives: TrainingNegatives) -> NewItems:
        """The same choices, where what can be had depends on time: candidates are then those of the latest rows."""
        cut = latest_cut(times)
        latest = np.flatnonzero(times > cut)
        if len(latest) == 0:
            return self
        is_old = np.zeros(int(items.max()) + 1, bool)
        is_old[items[times <= cut]] = True
        return NewItems(self.of_choices, new_share(latest, negatives, is_old, MOST_ROWS))


def last_rows(users: npt.NDArray[np.int32], times: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """The place of each user's last row; of rows of one time the one that stands last."""
    order = np.lexsort((times, users))
    return order[np.flatnonzero(np.diff(users[order], append=-1))]


def new_share(
    latest: npt.NDArray[np.int64], negatives: TrainingNegatives, is_old: npt.NDArray[np.bool_], most_rows: int
) -> float:
    """The share of new items among drawn negatives of the latest rows; is_old: by item, up to the last old one."""
    rng = np.random.default_rng(0)
    drawn = negatives.draw(rng.permutation(latest)[:most_rows], rng)
    return float((~is_old[np.minimum(drawn, len(is_old) - 1)] | (drawn >= len(is_old))).mean())


def latest_cut(times: npt.NDArray[Any]) -> Any:
    """The last time before the latest tenth; rows of one time stay together, on the earlier side."""
    place = max(round(len(times) * (1 - LATEST_SHARE)) - 1, 0)
    return np.partition(times, place)[place]
