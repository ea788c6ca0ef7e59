"""The settings of training itself."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated, Literal

from gmlfm.errors import OptionError
from gmlfm.models.settings import Choice, Real, Setting, one_of
from gmlfm.training.engines import ENGINES

_LARGEST_LR = 3e38  # float32 has no larger numbers
# Models with a deep part stay with what is popular for some hundred steps before they leave it.
_SHORTEST, _LONGEST, _STEPS = 3, 10, 400
_PATIENCE = Setting(
    f"epochs without a better validation result before training stops; auto is {_SHORTEST}, more where an epoch has few steps: "
    f"{_STEPS} steps, {_LONGEST} epochs at most; under a cosine schedule none, as the best comes when the rate has fallen",
    least=1,
)
_DECAY_OF_AN_EPOCH = 72.0
_WEIGHT_DECAY = Setting(
    f"decoupled decay of a step's rows, times lr; auto is 0, and with a history {_DECAY_OF_AN_EPOCH:g} over an epoch's steps, "
    "at most 1",
    least=0,
    below=100,
    search=Choice(("auto", 0.001, 0.01, 0.1, 0.5, 1.0)),
)


@dataclass(frozen=True)
class TrainingOptions:
    loss: Annotated[str, Setting("the objective", search=Choice(("squared", "logistic", "bpr", "softmax")))] = "squared"
    optimiser: Annotated[str, Setting("adam, adagrad or sgd, by rows of the table")] = "adam"
    lr: Annotated[float, Setting("learning rate", above=0, below=_LARGEST_LR, search=Real(1e-4, 3e-2))] = 3e-3
    weight_decay: Annotated[float | None, _WEIGHT_DECAY] = None
    schedule: Annotated[
        Literal["constant", "cosine"],
        Setting("lr over the epochs: constant, or falling to 0 along a half cosine at the last of `epochs`"),
    ] = "constant"
    epochs: Annotated[int, Setting("the most epochs there may be", least=0)] = 50
    patience: Annotated[int | None, _PATIENCE] = None
    seed: Annotated[int, Setting("of weights, negatives and order", least=0, most=2**31 - 1)] = 0
    threads: Annotated[
        int | None,
        Setting("into which a step's work is cut; auto takes PyTorch's number, within a container's quota", least=1, most=1024),
    ] = None
    engine: Annotated[str, Setting("who takes the steps: compiled kernels, eager PyTorch, or auto", check=one_of(ENGINES))] = (
        "auto"
    )

    def decay_for(self, steps_per_epoch: int, *, has_history: bool) -> float:
        """The weight decay; by default small data, whose epochs have few steps, are held back as much in an epoch as large."""
        if self.weight_decay is not None:
            return self.weight_decay
        return min(1.0, _DECAY_OF_AN_EPOCH / max(steps_per_epoch, 1)) if has_history else 0.0

    def lr_at(self, share: float) -> float:
        """The learning rate when a share of all epochs is done."""
        return self.lr if self.schedule == "constant" else self.lr * 0.5 * (1.0 + math.cos(math.pi * min(share, 1.0)))

    def patience_for(self, steps_per_epoch: int) -> int:
        if self.patience is None and self.schedule == "cosine":
            return max(self.epochs, 1)
        return self.patience or max(_SHORTEST, min(_LONGEST, -(-_STEPS // max(steps_per_epoch, 1))))

    def check_task(self, task: str, n_negatives: int, grouped: Collection[str]) -> None:
        """grouped: the losses that compare a positive with its negatives."""
        if self.loss in grouped and task != "topn":
            raise OptionError(f"the loss '{self.loss}' ranks a positive above negatives, which is the task topn; use squared.")
        if self.loss == "logistic" and task == "rating":
            raise OptionError("the loss 'logistic' separates +1 from -1; for the labels of the task rating use squared.")
        if self.loss in grouped and n_negatives < 1:
            raise OptionError(f"the loss '{self.loss}' compares a positive with negatives; set negatives to 1 or more.")
