"""How a model is fitted: chosen on validation, perhaps trained again, checkpointed; the same for memory and for shards."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gmlfm.arguments import shown
from gmlfm.errors import DataError, OptionError
from gmlfm.evaluation.metrics import default_metric
from gmlfm.fitting.epochs import epochs_told
from gmlfm.fitting.run import FittedRun, Refit
from gmlfm.models.base import FitInputs, FitReport, Floats, Model, UserSide
from gmlfm.models.episodic import EpisodicModel
from gmlfm.models.gradient import GradientModel
from gmlfm.storage import free_memory, write_text
from gmlfm.training.checkpoint import newest_checkpoint, remove_checkpoints, save_checkpoint
from gmlfm.training.episode_trainer import EpisodeTrainer
from gmlfm.training.options import TrainingOptions
from gmlfm.training.row_trainer import RowTrainer
from gmlfm.training.settings import Settings
from gmlfm.training.trainer import EpochReport, Observer, Resumable, Trainer, Validate

CHECKPOINTS, CHECKPOINTS_OF_REFIT, CURVE, STAMP = "checkpoints", "checkpoints-refit", "curve.jsonl", "fit.json"
_SAMPLED_RATINGS = 64
_MAY_CHANGE = ("patience", "threads")  # between a training and its resumption; and the device, which is no setting


class FitPlan(ABC):
    """One fit's choices, so that the selection and the refit after it cannot differ in more than their rows."""

    def __init__(self, settings: Settings, device: str) -> None:
        self.settings, self.device = settings, device

    @abstractmethod
    def selection_inputs(self) -> FitInputs:
        """What the choice is made on: the training rows."""

    @abstractmethod
    def refit_inputs(self, refit: Refit) -> FitInputs:
        """What is learned from after that choice."""

    @abstractmethod
    def validator(self, inputs: FitInputs) -> Validate | None:
        """What tells how good a model is on the validation part; None where the split has none."""

    @property
    @abstractmethod
    def validation_protocol(self) -> str: ...

    @abstractmethod
    def fingerprint(self) -> dict[str, Any]:
        """Names the data and the split, so that nothing else is resumed."""

    @abstractmethod
    def finish(self, model: Model, inputs: FitInputs, refit: Refit, report: FitReport) -> FittedRun:
        """Add the data, the split and the encoder that belong to these inputs."""

    @property
    def metric(self) -> str:
        """The validation result that decides; '-' before it where less is better."""
        if self.settings.task != "topn":
            return "-rmse"
        return default_metric("hr" if self.settings.as_published else "ndcg")

    def stamp(self, folder: Path, resume: bool, refit: Refit) -> None:
        """A run folder belongs to one fit: another's checkpoints must not be continued."""
        stamp = {**self.settings.to_dict(), **self.fingerprint(), "refit": refit.value}
        path = folder / STAMP
        if resume and path.exists():
            differences = _differences(read_stamp(path), json.loads(json.dumps(stamp)))
            if differences:
                raise OptionError(
                    f"{folder} was begun otherwise and cannot be resumed: {'; '.join(differences)}. Give what it was begun "
                    "with, or begin anew with --force."
                )
        if not resume:
            for name in (CHECKPOINTS, CHECKPOINTS_OF_REFIT):
                remove_checkpoints(folder / name)
            (folder / CURVE).unlink(missing_ok=True)
        write_text(path, json.dumps(stamp, sort_keys=True))


@dataclass(frozen=True)
class Stage:
    """One training of a fit, handed to Model.fit as its plan: the selection, which chooses the epoch on validation, or, with
    `epochs` given, the refit, which trains so many."""

    plan: FitPlan
    folder: Path | None
    resume: bool
    observer: Observer
    epochs: int | None = None

    def train(self, model: GradientModel, inputs: FitInputs) -> FitReport:
        n_rows = inputs.layout.n_rows
        refuse_too_large(n_rows, model.row_width)
        try:
            field_of_row = inputs.layout.field_of_row()
            schedule_epochs = self.plan.settings.training.epochs
            rest = (inputs.batches(), self.plan.device, field_of_row, schedule_epochs)
            trainer = RowTrainer(model, n_rows, self._options, *rest)
            report = self._run(trainer, inputs)
        except torch.OutOfMemoryError as error:
            size = self.plan.settings.batches.batch_size or "auto"
            raise OptionError(
                f"the GPU's memory is full ({n_rows:,} rows of {model.row_width} numbers, batch_size {size}); "
                "lower k or batch_size, or use the device cpu."
            ) from error
        model.cpu()
        model.table = trainer.table.detach().cpu()
        return report

    def train_episodes(self, model: EpisodicModel, inputs: FitInputs) -> FitReport:
        ratings = inputs.ratings()
        places = np.linspace(0, len(ratings.users) - 1, min(len(ratings.users), _SAMPLED_RATINGS)).astype(np.int64)

        def sample_scores() -> Floats:
            users, items = ratings.users[places], ratings.items[places]
            return model.score_pairs(UserSide(users, inputs.encoded.user_side(users, None)), items[:, None])[:, 0]

        return self._run(EpisodeTrainer(model, ratings, self._options, sample_scores), inputs)

    @property
    def _options(self) -> TrainingOptions:
        training = self.plan.settings.training
        return training if self.epochs is None else replace(training, epochs=self.epochs)

    def _run(self, trainer: Trainer, inputs: FitInputs) -> FitReport:
        is_refit = self.epochs is not None
        checkpoints = None if self.folder is None else self.folder / (CHECKPOINTS_OF_REFIT if is_refit else CHECKPOINTS)
        checkpoint = newest_checkpoint(checkpoints) if checkpoints is not None and self.resume else None
        if checkpoint is not None:
            trainer.load_state(*checkpoint)
        curve_file = None if self.folder is None or is_refit else self.folder / CURVE
        recorder = _Recorder(checkpoints, curve_file, trainer.epoch, self.observer)
        validate = None if is_refit else self.plan.validator(inputs)
        with epochs_told(trainer, validate, recorder) as (validate, observer):
            trainer.fit(validate, self.plan.metric, observer)
        by_epoch: dict[int, dict[str, float]] = {entry["epoch"]: entry["validation"] for entry in recorder.curve}
        validation = by_epoch.get(trainer.best_epoch, {})
        protocol = self.plan.validation_protocol if validation else ""
        return FitReport(trainer.best_epoch, validation, protocol, recorder.curve, trainer.diverged, trainer.interrupted)


def read_stamp(path: Path) -> dict[str, Any]:
    """What a training was begun with."""
    try:
        stamp = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(stamp, dict) or not isinstance(stamp.get("settings"), dict):
            raise ValueError("no settings")
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path} is damaged ({error}); begin anew with --force.") from error
    return stamp


def _differences(earlier: dict[str, Any], stamp: dict[str, Any]) -> list[str]:
    """In words, what is another than it was, apart from what may change on the way."""
    flat = [{**of, **of["settings"]} for of in (earlier, stamp)]
    # A schedule goes over all epochs: with more of them the rate would jump in the middle.
    may_change = _MAY_CHANGE if flat[1].get("schedule", "constant") != "constant" else (*_MAY_CHANGE, "epochs")
    changed = [name for name in flat[1] if name not in (*may_change, "settings") and flat[0].get(name) != flat[1][name]]
    return [f"{name} was {_shown(flat[0].get(name))} and is {_shown(flat[1][name])}" for name in changed]


def _shown(value: Any) -> str:
    return "not set" if value is None else str(value)


class _Recorder:
    """Writes the training curve and checkpoints, and hands on to the caller's observer."""

    def __init__(self, checkpoints: Path | None, curve_file: Path | None, epoch: int, observer: Observer) -> None:
        self._checkpoints, self._curve_file, self._observer = checkpoints, curve_file, observer
        self.curve: list[dict[str, Any]] = []
        if curve_file is not None and epoch > 0:
            self.curve = [entry for entry in read_curve(curve_file) if entry["epoch"] <= epoch]

    def on_step(self, done: int, total: int, loss: float) -> None:
        self._observer.on_step(done, total, loss)

    def on_epoch(self, report: EpochReport, trainer: Resumable) -> None:
        self.curve.append(report.to_dict())
        if self._curve_file is not None:
            write_text(self._curve_file, curve_text(self.curve))
        if self._checkpoints is not None:
            save_checkpoint(self._checkpoints, *trainer.state())
        self._observer.on_epoch(report, trainer)


def curve_text(curve: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(entry) + "\n" for entry in curve)


def read_curve(path: Path) -> list[dict[str, Any]]:
    return [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def refuse_too_large(n_rows: int, width: int) -> None:
    """The table and two moments: better a sentence than a killed process."""
    needed, free = 12 * n_rows * width, free_memory()
    if needed > free:
        raise OptionError(
            f"the table of {n_rows:,} rows of {width:,} numbers takes {needed / 2**30:.1f} GiB in training and "
            f"{free / 2**30:.1f} GiB are free; lower k, or raise min_count."
        )


def chosen_device(name: str) -> str:
    if not isinstance(name, str) or name not in ("auto", "cpu", "cuda"):
        raise OptionError(f"device is {shown(name)}; expected auto, cpu or cuda.")
    if name == "cuda" and not torch.cuda.is_available():
        raise OptionError("device is 'cuda', but there is none here; use auto or cpu.")
    return "cuda" if name == "auto" and torch.cuda.is_available() else "cpu" if name == "auto" else name
