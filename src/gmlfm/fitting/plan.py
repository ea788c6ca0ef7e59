"""What fitting from memory and from shards share: training with checkpoints and history."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from gmlfm.data.encoding import Encoded
from gmlfm.errors import OptionError
from gmlfm.fitting.run import FitReport, FittedRun, Refit
from gmlfm.models.base import GradientModel, Layout, Positives
from gmlfm.storage import free_memory, write_text
from gmlfm.training.checkpoint import newest_checkpoint, save_checkpoint
from gmlfm.training.loop import EpochReport, Observer, Resumable, Trainer, Validate
from gmlfm.training.sampling.batches import Batches
from gmlfm.training.settings import Settings


@dataclass(frozen=True)
class FitInputs:
    """What one training reads."""

    layout: Layout
    encoded: Encoded
    batches: Callable[[], Batches]
    positives: Callable[[], Positives]

    def introduce(self, model: GradientModel) -> None:
        """Show a model that sees the whole table the training positives."""
        if model.whole_table:
            seen = self.positives()
            user, item = self.encoded.user.ids[seen.users, 0], self.encoded.item.ids[seen.items, 0]
            model.set_graph(user.astype("int64"), item.astype("int64"))


class FitPlan(ABC):
    """One fit's choices, so that the first training and the one after it cannot differ in more than their rows."""

    def __init__(self, settings: Settings, device: str) -> None:
        self.settings, self.device = settings, device
        self.history: list[dict[str, Any]] = []

    @abstractmethod
    def first(self) -> FitInputs:
        """What the choice is made on: the training rows."""

    @abstractmethod
    def again(self, refit: Refit) -> FitInputs:
        """What is learned from after that choice."""

    @abstractmethod
    def validate(self, material: FitInputs) -> Validate | None: ...

    @abstractmethod
    def label_scale(self) -> tuple[float, float]:
        """Centre and spread of the training labels of the task rating; (0, 1) for the others."""

    @abstractmethod
    def fingerprint(self) -> dict[str, Any]:
        """Names the data and the split, so that nothing else is resumed."""

    @abstractmethod
    def finish(self, found: FitReport) -> FittedRun:
        """Add the data, the split and the encoder that belong to the last material."""

    @property
    def metric(self) -> str:
        """The validation result that decides; '-' before it where less is better."""
        if self.settings.task != "topn":
            return "-rmse"
        return "hr@10" if self.as_published else "ndcg@10"

    @property
    def as_published(self) -> bool:
        return self.settings.preset == "paper" and self.settings.task == "topn"

    def train(
        self,
        material: FitInputs,
        place: Path | None,
        resume: bool,
        observer: Observer,
        *,
        validate: bool,
        epochs: int | None = None,
    ) -> Trainer:
        options = self.settings.training if epochs is None else replace(self.settings.training, epochs=epochs)
        model = self.settings.build(material.layout)
        material.introduce(model)
        refuse_too_large(material.layout.n_rows, model.row_width)
        try:
            trainer = Trainer(model, material.layout.n_rows, options, self.device, material.layout.field_of_row())
            held = newest_checkpoint(place) if place is not None and resume else None
            if held is not None:
                trainer.load_state(*held)
            watch = Recorder(self, place, trainer.epoch, observer)
            check = self.validate(material) if validate else None
            trainer.fit(material.batches(), check, self.metric, watch)
        except torch.OutOfMemoryError as error:
            size = self.settings.batches.batch_size or "auto"
            raise OptionError(
                f"the GPU's memory is full ({material.layout.n_rows:,} rows of {model.row_width} numbers, batch_size {size}); "
                "lower k or batch_size, or use the device cpu."
            ) from error
        return trainer

    def stamp(self, folder: Path, resume: bool, refit: Refit) -> None:
        """A run folder belongs to one fit: another's checkpoints must not be continued."""
        about = json.dumps({**self.settings.to_dict(), **self.fingerprint(), "refit": refit}, sort_keys=True)
        path = folder / "fit.json"
        if resume and path.exists() and path.read_text(encoding="utf-8") != about:
            raise OptionError(f"{folder} was begun with other data or settings and cannot be resumed; leave --resume out.")
        if not resume and (folder / "checkpoints").exists():
            for name in ("checkpoints", "checkpoints-refit"):
                for file in sorted((folder / name).glob("*")) if (folder / name).exists() else []:
                    file.unlink()
            (folder / "history.jsonl").unlink(missing_ok=True)
        write_text(path, about)


class Recorder:
    """Writes history.jsonl and checkpoints, and hands on to the caller's observer."""

    def __init__(self, job: FitPlan, place: Path | None, epoch: int, outer: Observer) -> None:
        self._job, self._place, self._outer = job, place, outer
        self._file = place.parent / "history.jsonl" if place is not None and place.name == "checkpoints" else None
        job.history = []
        if self._file is not None and epoch > 0:
            job.history = [one for one in _read_lines(self._file) if one["epoch"] <= epoch]

    def on_step(self, done: int, total: int, loss: float) -> None:
        self._outer.on_step(done, total, loss)

    def on_epoch(self, report: EpochReport, trainer: Resumable) -> None:
        self._job.history.append(report.to_dict())
        if self._file is not None:
            write_text(self._file, "".join(json.dumps(one) + "\n" for one in self._job.history))
        if self._place is not None:
            save_checkpoint(self._place, *trainer.state())
        self._outer.on_epoch(report, trainer)


def refuse_too_large(n_rows: int, width: int) -> None:
    """The table and two moments: better a sentence than a killed process."""
    needed = 12 * n_rows * width
    free = free_memory()
    if free is not None and needed > free:
        raise OptionError(
            f"the table of {n_rows:,} rows of {width:,} numbers takes {needed / 2**30:.1f} GiB in training and "
            f"{free / 2**30:.1f} GiB are free; lower k, or raise min_count."
        )


def _read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def chosen_device(name: str) -> str:
    if name not in ("auto", "cpu", "cuda"):
        raise OptionError(f"device is '{name}'; expected auto, cpu or cuda.")
    if name == "cuda" and not torch.cuda.is_available():
        raise OptionError("device is 'cuda', but there is none here; use auto or cpu.")
    return "cuda" if name == "auto" and torch.cuda.is_available() else "cpu" if name == "auto" else name
