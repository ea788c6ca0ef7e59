"""What a fit leaves behind."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from gmlfm.data.dataset import Dataset, Rows
from gmlfm.data.encoding import Encoded, Encoder
from gmlfm.data.splits import Split
from gmlfm.data.stock import Stock
from gmlfm.models.base import ClosedFormModel
from gmlfm.retrieval import Ranker, Scorer
from gmlfm.training.sampling.negatives import Instances
from gmlfm.training.settings import Settings

Refit = bool | str  # False, True (train + validation) or "all" (test too)


@dataclass(frozen=True)
class FitReport:
    """What training itself found."""

    encoded: Encoded
    scores: Ranker
    weights: dict[str, Tensor]
    regime: str
    best_epoch: int = 0
    validation: dict[str, float] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    label_scale: tuple[float, float] = (0.0, 1.0)
    diverged: str = ""


@dataclass
class FittedRun:
    """Everything that scoring, evaluating and saving need."""

    settings: Settings
    data: Dataset
    split: Split
    encoder: Encoder
    encoded: Encoded
    scores: Ranker
    weights: dict[str, Tensor]
    regime: str
    best_epoch: int = 0
    validation: dict[str, float] = field(default_factory=dict)
    validation_protocol: str = ""
    history: list[dict[str, Any]] = field(default_factory=list)
    limits: tuple[float, float] = (-1.0, 1.0)
    instances: Instances | None = None
    label_scale: tuple[float, float] = (0.0, 1.0)  # centre and spread of the training labels, which scores are given in
    diverged: str = ""  # why training stopped before its time
    extra_items: tuple[int, ...] = ()  # numbers that may be recommended though no interaction names them
    stock: Stock = field(default_factory=lambda: Stock(0))

    @property
    def uses_histories(self) -> bool:
        """Whether a newcomer's choices change her scores: by a row of her own, or by counting."""
        return isinstance(self.scores, ClosedFormModel) or (
            isinstance(self.scores, Scorer) and not self.scores.model.whole_table
        )

    def __post_init__(self) -> None:
        if len(self.stock.here) != len(self.data.items):
            self.stock = Stock(len(self.data.items))


def learned_rows(split: Split, found_regime: str) -> Rows:
    """The rows that a run of this regime has learned from; of the task `implicit`, its instances."""
    parts = [split.train]
    parts += [split.validation] if found_regime != regime(False) else []
    parts += [split.test] if found_regime == regime("all") else []
    return np.sort(np.concatenate(parts))


def regime(refit: Refit) -> str:
    return "no refit" if not refit else "refit on train + validation" if refit is True else "refit on all rows"
