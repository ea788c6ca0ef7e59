"""The loop: epochs of steps by rows, validation, early stopping with the best weights kept. It knows no metric by name."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gmlfm.errors import GmlfmError, OptionError, did_you_mean
from gmlfm.models.base import GradientModel
from gmlfm.training.best import BestWeights
from gmlfm.training.cold_start import ColdStartTrainer
from gmlfm.training.engines import Engine, engine_named, make_engine
from gmlfm.training.objectives import GROUPED, OBJECTIVES
from gmlfm.training.rows import DENSE_OPTIMISERS, row_optimiser
from gmlfm.training.sampling.batches import Batches, RankingBatches

_LARGEST_LR = 3e38  # float32 has no larger numbers
Validate = Callable[[GradientModel, Tensor], Mapping[str, float]]


class DivergedError(GmlfmError):
    """The loss stopped being a number; the last good weights are kept."""


@dataclass(frozen=True)
class TrainingOptions:
    """epochs is the most there may be; patience the epochs without a better validation result before stopping.

    engine: 'compiled' kernels, or 'eager', PyTorch operation by operation; 'auto' compiles where it can.
    """

    loss: str = "squared"
    optimiser: str = "adam"
    lr: float = 3e-3
    weight_decay: float = 0.0
    epochs: int = 50
    patience: int = 3
    seed: int = 0
    threads: int | None = None
    engine: str = "auto"

    def check(self, task: str, n_negatives: int) -> None:
        engine_named(self.engine)
        if self.loss not in OBJECTIVES:
            raise OptionError(f"loss is '{self.loss}'{did_you_mean(self.loss, OBJECTIVES)}")
        if self.loss in GROUPED and task != "topn":
            raise OptionError(f"the loss '{self.loss}' ranks a positive above negatives, which is the task topn; use squared.")
        if self.loss == "logistic" and task == "rating":
            raise OptionError("the loss 'logistic' tells +1 from -1; for labels of any value, the task rating, use squared.")
        if self.loss in GROUPED and n_negatives < 1:
            raise OptionError(f"the loss '{self.loss}' compares a positive with negatives; set negatives to 1 or more.")
        if self.threads is not None and self.threads < 1:
            raise OptionError(f"threads is {self.threads}; expected 1 or more.")
        if not 0 <= self.seed < 2**31:
            raise OptionError(f"seed is {self.seed}; expected 0 or more, below 2^31.")
        if not 0 < self.lr < _LARGEST_LR:
            raise OptionError(f"lr is {self.lr:g}; expected a number above 0 and below {_LARGEST_LR:g}.")
        if not 0 <= self.weight_decay < 1:
            raise OptionError(f"weight_decay is {self.weight_decay}; expected at least 0 and below 1.")
        for name, least in (("epochs", 0), ("patience", 1)):
            if getattr(self, name) < least:
                raise OptionError(f"{name} is {getattr(self, name)}; expected {least} or more.")


@dataclass(frozen=True)
class EpochReport:
    """One line of history.jsonl."""

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
    """What the loop tells while it works; every method may do nothing."""

    def on_step(self, done: int, total: int, loss: float) -> None: ...

    def on_epoch(self, report: EpochReport, trainer: Resumable) -> None: ...


class Trainer:
    """Holds a model, its table and their optimisers; everything a checkpoint needs is in `state` and `load_state`."""

    def __init__(
        self,
        model: GradientModel,
        n_rows: int,
        options: TrainingOptions,
        device: torch.device | str = "cpu",
        field_of_row: npt.NDArray[np.int16] | None = None,
    ) -> None:
        self.model, self.options = model.to(device), options
        self.device = torch.device(device)
        table = model.initial_rows(n_rows, torch.Generator().manual_seed(options.seed))
        table[0] = 0.0  # padding
        self.table = table.to(device)
        self.rows = row_optimiser(options.optimiser, self.table, options.lr, options.weight_decay)
        self.dense = DENSE_OPTIMISERS[options.optimiser](model.parameters(), lr=options.lr)
        self._field_of_row = field_of_row if model.needs_fields else None
        self.epoch = 0
        self.best_value = float("-inf")
        self.best_epoch = 0
        self.best = BestWeights()
        self.diverged = ""
        self._steps: Engine | None = None
        self._batches: tuple[Batches, Any] | None = None

    def fit(self, batches: Batches, validate: Validate | None, metric: str, observer: Observer) -> None:
        """Train until validation stops improving, then restore the best weights. Without validation: all epochs.

        metric: the validation result that decides; higher is better, unless it begins with '-'.
        A loss that is no number any more ends training (`diverged` says so), or raises when no epoch was whole before it.
        """
        if self.options.threads is not None:
            torch.set_num_threads(self.options.threads)
        while self.epoch < self.options.epochs and self.epoch - self.best_epoch < self._patience(validate):
            started = time.perf_counter()
            try:
                loss = self._run_epoch(batches, observer)
            except DivergedError as error:
                if not self.best:
                    raise
                self.diverged = str(error)
                break
            seconds = time.perf_counter() - started
            self.epoch += 1
            results = dict(validate(self.model, self.table)) if validate else {}
            value = _higher_is_better(results, metric) if validate else float(self.epoch)
            warming = self.epoch <= self.model.warm_epochs < self.options.epochs
            improved = value > self.best_value and not warming
            if warming:
                self.best_epoch = self.epoch  # patience counts from the first epoch that is judged
            if improved:
                self.best_value, self.best_epoch = value, self.epoch
                self.best.keep(self.weights())
            report = EpochReport(self.epoch, loss, results, improved, seconds, batches.n_instances / max(seconds, 1e-9))
            observer.on_epoch(report, self)
        self.restore_best()

    def _patience(self, validate: Validate | None) -> int:
        return self.options.patience if validate else self.options.epochs + 1

    def _run_epoch(self, batches: Batches, observer: Observer) -> float:
        # Dropout draws from torch's own stream; named by the epoch, a resumed run draws the same.
        torch.manual_seed(self.options.seed * 1_000_003 + self.epoch)
        self.model.train()
        self.model.begin_epoch(self.epoch)
        total, done = 0.0, 0
        steps, resident = self.steps(), self._resident(batches)
        size, cold_start_sampler = resident.groups_per_step, resident.cold_start_sampler(self.epoch)
        given = (self.model, self.table, steps, size, cold_start_sampler, self._field_of_row, self.options.loss)
        cold_start = ColdStartTrainer(*given) if cold_start_sampler else None
        for batch in resident.epoch(self.epoch):
            for loss, n_instances in steps.run(batch, size):
                self._refuse_no_number(loss)
                total += loss * n_instances
                done += n_instances
                observer.on_step(done, batches.n_instances, total / done)
            for loss in cold_start.after(len(batch)) if cold_start else ():
                self._refuse_no_number(loss)
        for loss in cold_start.end() if cold_start else ():
            self._refuse_no_number(loss)
        return total / max(done, 1)

    def _refuse_no_number(self, loss: float) -> None:
        if not np.isfinite(loss):
            kept = f"the weights of epoch {self.best_epoch} are kept" if self.best else "nothing is kept"
            raise DivergedError(
                f"the loss became {loss} in epoch {self.epoch + 1}, {kept}; lower lr (now {self.options.lr:g})."
            )

    def steps(self) -> Engine:
        """The engine that takes this model's steps: compiled kernels where there are some, else PyTorch."""
        if self._steps is None:
            self._steps = make_engine(self.model, self.rows, self.dense, self.options, self._field_of_row)
        return self._steps

    def _resident(self, batches: Batches) -> Any:
        """Batches on the device, where both they and the steps can be there."""
        if not isinstance(batches, RankingBatches) or not self.steps().takes_device_batches:
            return batches
        from gmlfm.training.engines.resident import ResidentBatches

        if self._batches is None or self._batches[0] is not batches:
            self._batches = batches, ResidentBatches(batches, self.device)
        return self._batches[1]

    def weights(self) -> dict[str, Tensor]:
        """The table and the dense parameters: all that scoring needs."""
        return {"table": self.table, **{f"dense.{name}": one for name, one in self.model.state_dict().items()}}

    def restore_best(self) -> None:
        if self.best:
            self.best.put_into(self.weights())

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and numbers from which training goes on exactly."""
        tensors = {f"now.{name}": one for name, one in self.weights().items()}
        tensors |= {f"best.{name}": one for name, one in self.best.tensors().items()}
        tensors |= {f"rows.{name}": one for name, one in self.rows.state().items()}
        dense = self.dense.state_dict()["state"]
        tensors |= {
            f"optimiser.{at}.{name}": torch.as_tensor(one) for at, slots in dense.items() for name, one in slots.items()
        }
        numbers = {"epoch": self.epoch, "best_value": self.best_value, "best_epoch": self.best_epoch}
        return tensors, numbers

    def load_state(self, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
        def under(prefix: str) -> dict[str, Tensor]:
            return {name.removeprefix(prefix): one for name, one in tensors.items() if name.startswith(prefix)}

        load_weights(self.model, self.table, under("now."))
        self.best.load(under("best."))
        for name, one in self.rows.state().items():
            one.copy_(tensors[f"rows.{name}"])
        held = self.dense.state_dict()
        held["state"] = {}
        for key, one in under("optimiser.").items():
            at, name = key.split(".", 1)
            held["state"].setdefault(int(at), {})[name] = one
        self.dense.load_state_dict(held)
        self._steps = None  # the optimiser's state lies elsewhere now
        self.epoch, self.best_value, self.best_epoch = numbers["epoch"], numbers["best_value"], numbers["best_epoch"]


def _higher_is_better(results: Mapping[str, float], metric: str) -> float:
    return -results[metric[1:]] if metric.startswith("-") else results[metric]


def load_weights(model: GradientModel, table: Tensor, weights: Mapping[str, Tensor]) -> None:
    table.copy_(weights["table"])
    model.load_state_dict({name.removeprefix("dense."): one for name, one in weights.items() if name.startswith("dense.")})
