"""Models without gradients."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from gmlfm.data.dataset import Rows
from gmlfm.models.base import Counted, Floats, Ints, Positives


class Popularity(Counted):
    """score(u, i) = how many training positives item i has."""

    def __init__(self) -> None:
        self.counts = np.empty(0, np.float32)

    def fit(self, positives: Positives) -> None:
        self.counts = np.bincount(positives.items, minlength=positives.n_items).astype(np.float32)

    def everything(self, users: Ints, items: Ints, rows: Rows | None = None) -> Floats:
        return np.tile(self.counts[items], (len(users), 1))

    def weights(self) -> dict[str, Tensor]:
        return {"counts": torch.from_numpy(self.counts)}

    def load(self, weights: Mapping[str, Tensor]) -> None:
        self.counts = weights["counts"].numpy()
