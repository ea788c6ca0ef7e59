"""The one training loop: epochs, validation, early stopping with the best weights kept, checkpoints.

It knows no metric by name and no kind of model: a subclass runs an epoch and names its weights.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from gmlfm.errors import GmlfmError, NotFiniteError
from gmlfm.models.base import Model
from gmlfm.training.best import BestWeights, are_finite
from gmlfm.training.options import TrainingOptions
from gmlfm.training.probe import Reading

_MOST_ABOVE_START = 3  # epochs in a row whose loss is above the start
Validate = Callable[[Model], Mapping[str, float]]


class DivergedError(GmlfmError):
    """Training came to nothing: a loss, weight or score is no number, the loss is above its start, or all scores are the same.
    The best epoch before is kept, if there is one."""

    exit_code = 1


class TrainingInterrupted(KeyboardInterrupt):
    """Somebody stopped the training; the best epoch so far is kept."""

    def __init__(self, best_epoch: int, message: str = "") -> None:
        super().__init__(message or f"the training was interrupted; the best epoch so far, {best_epoch}, is kept.")
        self.best_epoch = best_epoch


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
    """Everything a checkpoint needs is in `state` and `load_state`.

    start_loss: before anything was learned; not a number where it is not known. A subclass sets it in its first epoch.
    n_above_start: the epochs in a row, up to the last, whose loss is above it.
    """

    most_above_start: ClassVar[float] = 1.1  # a loss above so many times its start is no noise

    def __init__(self, model: Model, options: TrainingOptions) -> None:
        self.options = options
        self._model = model
        self.epoch = 0
        self.best_value = float("-inf")
        self.best_epoch = 0
        self.best = BestWeights()
        self.diverged = ""
        self.interrupted = False
        self.start_loss, self.n_above_start = math.nan, 0

    @property
    @abstractmethod
    def n_instances(self) -> int:
        """Instances of an epoch, for its speed."""

    @property
    @abstractmethod
    def steps_per_epoch(self) -> int: ...

    @property
    def patience(self) -> int:
        return self.options.patience_for(self.steps_per_epoch)

    @property
    def warm_epochs(self) -> int:
        """Epochs that early stopping does not judge."""
        return 0

    @abstractmethod
    def run_epoch(self, observer: Observer) -> float:
        """Epoch number `self.epoch`; returns its mean loss. Raises DivergedError where a loss is no number."""

    def probe(self) -> Reading | None:
        """What the weights give now on a fixed sample of what they learn from; None where nothing can be said."""
        return None

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
        Training that diverges ends with the best epoch so far (`diverged` says why), or raises where nothing was learned: a
        loss, weight or score is no number; all scores are the same; the loss is above its start. With a high lr the first
        epochs may end above the start and the next ones learn, so three of them in a row (or `patience`) end training. None of
        them is the best. Ctrl-C ends it likewise with the best epoch so far (`interrupted`), or raises where there is none.
        """
        if self.options.threads is not None:
            torch.set_num_threads(self.options.threads)
        divergence: DivergedError | None = None
        try:
            divergence = self._run_epochs(validate, metric, observer)
        except KeyboardInterrupt:
            if not self.best:
                raise
            self.interrupted = True
        if divergence is None and self.n_above_start and not self.interrupted:
            divergence = DivergedError(
                f"the loss after epoch {self.epoch} is above the {self.start_loss:.4g} that it started from; {self._remedy}"
            )
        if divergence is not None and not self.best:
            raise DivergedError(f"nothing was learned: {divergence}") from divergence
        if divergence is not None:
            self.diverged = f"the weights of epoch {self.best_epoch} are kept: {divergence}"
        if self.best:
            self.restore_best()

    def _run_epochs(self, validate: Validate | None, metric: str, observer: Observer) -> DivergedError | None:
        """Until patience or epochs are at their end; returns why training diverged, if it did within an epoch."""
        patience = self.patience if validate else self.options.epochs + 1
        while self.epoch < self.options.epochs and self.epoch - self.best_epoch < patience:
            is_warming = self.epoch < self.warm_epochs < self.options.epochs
            started = time.perf_counter()
            try:
                loss = self.run_epoch(observer)
                seconds = time.perf_counter() - started
                self._check_epoch(is_warming)
                results = self._validated(validate)
            except DivergedError as error:
                return error
            self.epoch += 1
            value = _higher_is_better(results, metric) if validate else float(self.epoch)
            is_best = value > self.best_value and not self.n_above_start and not is_warming
            if is_warming:
                self.best_epoch = self.epoch  # patience counts from the first epoch that is judged
            if is_best:
                self.best_value, self.best_epoch = value, self.epoch
                self.best.keep(self.weights())
            speed = self.n_instances / max(seconds, 1e-9)
            observer.on_epoch(EpochReport(self.epoch, loss, results, is_best, seconds, speed), self)
            if self.n_above_start >= min(self.patience, _MOST_ABOVE_START):
                break
        return None

    def _check_epoch(self, is_warming: bool) -> None:
        """Of the epoch that just ended. Warm epochs train another loss than that of the start."""
        number = self.epoch + 1
        if not are_finite(self.weights()):
            raise DivergedError(f"weights are not finite after epoch {number}; {self._remedy}")
        reading = None if is_warming else self.probe()
        if reading is None:
            return
        if reading.is_constant:
            raise DivergedError(f"all items have the same score after epoch {number}; {self._remedy}")
        if not math.isfinite(reading.loss):
            raise DivergedError(f"the loss is {reading.loss} after epoch {number}; {self._remedy}")
        highest = self.start_loss + (self.most_above_start - 1) * abs(self.start_loss)
        self.n_above_start = self.n_above_start + 1 if reading.loss > highest else 0

    def _validated(self, validate: Validate | None) -> dict[str, float]:
        if validate is None:
            return {}
        try:
            return dict(validate(self._model))
        except NotFiniteError as error:
            raise DivergedError(f"a score is not finite after epoch {self.epoch + 1}; {self._remedy}") from error

    @property
    def _remedy(self) -> str:
        return f"lower lr (now {self.options.lr:g})."

    def restore_best(self) -> None:
        self.load_weights(self.best.tensors())

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and numbers from which training goes on exactly."""
        tensors = {f"now.{name}": tensor for name, tensor in self.weights().items()}
        tensors |= {f"best.{name}": tensor for name, tensor in self.best.tensors().items()}
        numbers: dict[str, Any] = {"epoch": self.epoch, "best_value": self.best_value, "best_epoch": self.best_epoch}
        numbers["start_loss"] = None if math.isnan(self.start_loss) else self.start_loss
        numbers["n_above_start"] = self.n_above_start
        return tensors | self.optimiser_state(), numbers

    def load_state(self, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
        self.load_weights(under_prefix(tensors, "now."))
        self.best.load(under_prefix(tensors, "best."))
        self.load_optimiser_state(tensors)
        self.epoch, self.best_value, self.best_epoch = numbers["epoch"], numbers["best_value"], numbers["best_epoch"]
        start_loss = numbers.get("start_loss")  # checkpoints of earlier versions have none
        self.start_loss = math.nan if start_loss is None else float(start_loss)
        self.n_above_start = numbers.get("n_above_start", 0)


def under_prefix(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _higher_is_better(results: Mapping[str, float], metric: str) -> float:
    return -results[metric[1:]] if metric.startswith("-") else results[metric]
