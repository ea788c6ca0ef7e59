"""Models without gradients."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gmlfm.data.attributes import AttributeTable
from gmlfm.data.dataset import Rows

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]


class Popularity:
    """score(u, i) = how many training positives item i has."""

    def __init__(self, items: Ints, n_items: int) -> None:
        self.counts = np.bincount(items, minlength=n_items).astype(np.float32)

    def pairs(self, users: Ints, items: Ints, rows: Rows | None = None) -> Floats:
        return self.counts[items]

    def everything(self, users: Ints, items: Ints, rows: Rows | None = None) -> Floats:
        return np.tile(self.counts[items], (len(users), 1))

    def everything_for(self, asking: AttributeTable, items: Ints) -> Floats:
        return np.tile(self.counts[items], (len(asking), 1))
