"""The one training loop: epochs, validation, early stopping with the best weights kept, checkpoints.

It knows no metric by name and no kind of model: a subclass runs an epoch and names its weights.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from gmlfm.errors import GmlfmError
from gmlfm.models.base import Model
from gmlfm.training.best import BestWeights
from gmlfm.training.options import TrainingOptions

Validate = Callable[[Model], Mapping[str, float]]


class DivergedError(GmlfmError):
    """The loss stopped being a number; the last good weights are kept."""


@dataclass(frozen=True)
class EpochReport:
    """One line of curve.jsonl."""

    epoch: int
    loss: float
    validation: dict[str, float]
    best: bool
    seconds: float
    instances_per_second: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class Resumable(Protocol):
    """Whatever can be put in a checkpoint: tensors and numbers from which its training goes on."""

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]: ...


class Observer(Protocol):
    """What training reports while it works."""

    def on_step(self, done: int, total: int, loss: float) -> None: ...

    def on_epoch(self, report: EpochReport, trainer: Resumable) -> None: ...


class NullObserver:
    """Ignores training events."""

    def on_step(self, done: int, total: int, loss: float) -> None:
        pass

    def on_epoch(self, report: EpochReport, trainer: Resumable) -> None:
        pass


class Trainer(ABC):
    """Everything a checkpoint needs is in `state` and `load_state`."""

    def __init__(self, model: Model, options: TrainingOptions) -> None:
        self.options = options
        self._model = model
        self.epoch = 0
        self.best_value = float("-inf")
        self.best_epoch = 0
        self.best = BestWeights()
        self.diverged = ""

    @property
    @abstractmethod
    def n_instances(self) -> int:
        """Instances of an epoch, for its speed."""

    @property
    def warm_epochs(self) -> int:
        """Epochs that early stopping does not judge."""
        return 0

    @abstractmethod
    def run_epoch(self, observer: Observer) -> float:
        """Epoch number `self.epoch`; returns its mean loss. Raises DivergedError where a loss is no number."""

    @abstractmethod
    def weights(self) -> dict[str, Tensor]:
        """All that scoring needs, as it is now: changed in place by the next epoch."""

    @abstractmethod
    def load_weights(self, weights: Mapping[str, Tensor]) -> None: ...

    def optimiser_state(self) -> dict[str, Tensor]:
        """What training needs beside the weights to go on exactly."""
        return {}

    def load_optimiser_state(self, state: Mapping[str, Tensor]) -> None:  # noqa: B027 - without a state, nothing to load
        """Take it up again."""

    def fit(self, validate: Validate | None, metric: str, observer: Observer) -> None:
        """Train until validation stops improving, then restore the best weights. Without validation: all epochs.

        metric: the validation result that decides; higher is better, unless it begins with '-'.
        A loss that is no number any more ends training (`diverged` says so), or raises when no epoch was whole before it.
        """
        if self.options.threads is not None:
            torch.set_num_threads(self.options.threads)
        patience = self.options.patience if validate else self.options.epochs + 1
        while self.epoch < self.options.epochs and self.epoch - self.best_epoch < patience:
            started = time.perf_counter()
            try:
                loss = self.run_epoch(observer)
            except DivergedError as error:
                if not self.best:
                    raise
                self.diverged = str(error)
                break
            seconds = time.perf_counter() - started
            self.epoch += 1
            results = dict(validate(self._model)) if validate else {}
            value = _higher_is_better(results, metric) if validate else float(self.epoch)
            is_warming = self.epoch <= self.warm_epochs < self.options.epochs
            is_best = value > self.best_value and not is_warming
            if is_warming:
                self.best_epoch = self.epoch  # patience counts from the first epoch that is judged
            if is_best:
                self.best_value, self.best_epoch = value, self.epoch
                self.best.keep(self.weights())
            speed = self.n_instances / max(seconds, 1e-9)
            observer.on_epoch(EpochReport(self.epoch, loss, results, is_best, seconds, speed), self)
        if self.best:
            self.restore_best()

    def restore_best(self) -> None:
        self.load_weights(self.best.tensors())

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and numbers from which training goes on exactly."""
        tensors = {f"now.{name}": tensor for name, tensor in self.weights().items()}
        tensors |= {f"best.{name}": tensor for name, tensor in self.best.tensors().items()}
        numbers = {"epoch": self.epoch, "best_value": self.best_value, "best_epoch": self.best_epoch}
        return tensors | self.optimiser_state(), numbers

    def load_state(self, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
        self.load_weights(under_prefix(tensors, "now."))
        self.best.load(under_prefix(tensors, "best."))
        self.load_optimiser_state(tensors)
        self.epoch, self.best_value, self.best_epoch = numbers["epoch"], numbers["best_value"], numbers["best_epoch"]


def under_prefix(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _higher_is_better(results: Mapping[str, float], metric: str) -> float:
    return -results[metric[1:]] if metric.startswith("-") else results[metric]
