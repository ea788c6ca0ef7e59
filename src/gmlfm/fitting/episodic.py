"""Fitting an episodic model, whose tasks are users: epochs, validation, early stopping and checkpoints as for the others."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from gmlfm.data.dataset import Dataset, Rows
from gmlfm.errors import DataError
from gmlfm.evaluation.protocols import evaluate_labels
from gmlfm.fitting.memory import MemoryPlan, labelled
from gmlfm.fitting.plan import FitInputs, Recorder
from gmlfm.fitting.run import FitReport, Refit, learned_rows, regime
from gmlfm.models.base import Rated
from gmlfm.models.mamo import Mamo
from gmlfm.training.checkpoint import newest_checkpoint
from gmlfm.training.loop import EpochReport, Observer


def rated(data: Dataset, rows: Rows) -> Rated:
    users, items, labels, _ = labelled(data, None, rows)
    return Rated(users, items, labels)


def with_labels(data: Dataset, rows: Rows) -> Rows:
    there: npt.NDArray[np.bool_] = data.interactions["label"].is_not_null().to_numpy()
    return rows[there[rows]]


@dataclass
class _Progress:
    """What a checkpoint holds."""

    model: Mamo
    epoch: int = 0
    best_epoch: int = 0
    best_value: float = float("inf")
    best: dict[str, Tensor] | None = None

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors = {f"now.{name}": one for name, one in self.model.weights().items()}
        tensors |= {f"best.{name}": one for name, one in (self.best or {}).items()}
        return tensors, {"epoch": self.epoch, "best_epoch": self.best_epoch, "best_value": self.best_value}

    def load_state(self, tensors: dict[str, Tensor], numbers: dict[str, Any]) -> None:
        held = {
            part: {name.removeprefix(f"{part}."): one for name, one in tensors.items() if name.startswith(f"{part}.")}
            for part in ("now", "best")
        }
        self.model.load(held["now"])
        self.best = held["best"]
        self.epoch, self.best_epoch, self.best_value = numbers["epoch"], numbers["best_epoch"], numbers["best_value"]


def fit_episodic(job: MemoryPlan, refit: Refit, folder: Path | None, resume: bool, observer: Observer) -> FitReport:
    material = job.first()
    progress = _run(job, material, False, folder, resume, observer, validate=True)
    history, best = list(job.history), progress.best_epoch
    chosen: dict[str, float] = next((one["validation"] for one in history if one["epoch"] == best), {})
    if refit:
        material = job.again(refit)
        progress = _run(job, material, refit, folder, resume, observer, validate=False, epochs=max(best, 1))
    model = progress.model
    return FitReport(material.encoded, model, model.weights(), regime(refit), best, chosen, history)


def _run(
    job: MemoryPlan,
    material: FitInputs,
    refit: Refit,
    folder: Path | None,
    resume: bool,
    observer: Observer,
    *,
    validate: bool,
    epochs: int | None = None,
) -> _Progress:
    model = job.settings.episodic(material.layout)
    # A user is adapted, when she is scored, on the rows learned from, as for every other method.
    tasks, options = rated(job.data, with_labels(job.data, learned_rows(job.split, regime(refit)))), job.settings.training
    model.read(material.encoded, tasks)
    progress = _Progress(model)
    place = None if folder is None else folder / ("checkpoints" if validate else "checkpoints-refit")
    held = newest_checkpoint(place) if place is not None and resume else None
    if held is not None:
        progress.load_state(*held)
    watch = Recorder(job, place, progress.epoch, observer)
    tested = job.split.validation if validate else np.empty(0, np.int64)
    last = options.epochs if epochs is None else epochs
    while progress.epoch < last and (len(tested) == 0 or progress.epoch - progress.best_epoch < options.patience):
        started = time.perf_counter()
        loss = model.epoch(tasks, progress.epoch, watch.on_step)
        seconds = time.perf_counter() - started
        progress.epoch += 1
        results = _validated(job, model, tested) if len(tested) else {}
        value = results["rmse"] if results else -float(progress.epoch)
        improved = value < progress.best_value
        if improved:
            progress.best_value, progress.best_epoch = value, progress.epoch
            progress.best = {name: one.clone() for name, one in model.weights().items()}
        speed = len(tasks.users) / max(seconds, 1e-9)
        watch.on_epoch(EpochReport(progress.epoch, loss, results, improved, seconds, speed), progress)
    if progress.best is None:
        raise DataError("epochs is 0, and a model without an epoch predicts nothing; ask for 1 or more.")
    model.load(progress.best)
    return progress


def _validated(job: MemoryPlan, model: Mamo, rows: Rows) -> dict[str, float]:
    users, items, labels, interactions = labelled(job.data, None, rows)
    predicted = model.score_pairs(users, items[:, None], interactions)[:, 0]
    return evaluate_labels(predicted, labels, job.limits, implicit=False).metrics
