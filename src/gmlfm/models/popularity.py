"""Popularity: score(u, i) = how many training positives item i has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from gmlfm.models.base import FitInputs, FitReport, Floats, Ints, Plan, UserSide
from gmlfm.models.closed_form import ClosedFormModel


class Popularity(ClosedFormModel):
    reads_users: ClassVar[bool] = False

    def __init__(self) -> None:
        self._counts = np.empty(0, np.float32)

    def fit(self, inputs: FitInputs, plan: Plan) -> FitReport:
        positives = inputs.positives()
        self._counts = np.bincount(positives.items, minlength=positives.n_items).astype(np.float32)
        return FitReport()

    def score_all(self, users: UserSide, items: Ints) -> Floats:
        return np.tile(self._counts[items], (len(users), 1))

    def state_dict(self) -> dict[str, Tensor]:
        return {"counts": torch.from_numpy(self._counts)}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self._counts = state["counts"].numpy()
