"""From a dataset and settings to fitted scores: split, encode, train, choose on validation, and perhaps train again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gmlfm.data.batches import Batches, IdRows, LabelledBatches, RankingBatches
from gmlfm.data.dataset import Dataset, Rows
from gmlfm.data.encoding import Encoded, Encoder
from gmlfm.data.negatives import Instances, implicit_instances, training_sampler
from gmlfm.data.splits import Split, make_split
from gmlfm.errors import DataError, OptionError
from gmlfm.evaluation.protocols import N_SAMPLED, evaluate_labels, evaluate_ranking
from gmlfm.models.base import Model
from gmlfm.models.registry import model_info
from gmlfm.models.simple import Popularity
from gmlfm.retrieval import Scorer, Scores
from gmlfm.storage import write_text
from gmlfm.training.checkpoint import newest_checkpoint, save_checkpoint
from gmlfm.training.loop import EpochReport, Observer, Trainer, Validate
from gmlfm.training.settings import Settings

Refit = bool | str  # False, True (train + validation) or "all" (test too)


@dataclass
class Fitted:
    """Everything that scoring, evaluating and saving need."""

    settings: Settings
    data: Dataset
    split: Split
    encoder: Encoder
    encoded: Encoded
    scores: Scores
    weights: dict[str, Tensor]
    regime: str
    best_epoch: int = 0
    validation: dict[str, float] = field(default_factory=dict)
    validation_protocol: str = ""
    history: list[dict[str, Any]] = field(default_factory=list)
    limits: tuple[float, float] = (-1.0, 1.0)
    instances: Instances | None = None


class Silent:
    """An observer that looks away."""

    def on_step(self, done: int, total: int, loss: float) -> None:
        pass

    def on_epoch(self, report: EpochReport, trainer: Trainer) -> None:
        pass


def fit(
    data: Dataset,
    settings: Settings,
    *,
    split: str = "leave-one-out",
    split_options: Mapping[str, Any] | None = None,
    refit: Refit = False,
    folder: Path | None = None,
    resume: bool = False,
    device: str = "auto",
    observer: Observer | None = None,
) -> Fitted:
    if refit not in (False, True, "all"):
        raise OptionError(f"refit is {refit!r}; expected nothing, true or all.")
    if settings.preset == "paper" and refit:
        raise OptionError("the preset 'paper' trains on all but the test rows already; leave refit out.")
    job = _Job(data, settings, split, dict(split_options or {}), _device(device))
    watch = observer or Silent()
    if folder is not None:
        job.stamp(folder, resume)
    rows = job.first_rows()
    encoder, encoded = job.encode(rows)
    if model_info(settings.model).make is None:
        return job.counted(rows if not refit else job.again_rows(refit), encoder, encoded, _regime(refit))
    trainer = job.train(rows, encoder, encoded, _place(folder, "checkpoints"), resume, watch, validate=True)
    history, best = list(job.history), trainer.best_epoch
    chosen: dict[str, float] = next((one["validation"] for one in history if one["epoch"] == best), {})
    if refit:
        again = job.again_rows(refit)
        encoder, encoded = job.encode(again)
        epochs = max(best, 1)
        trainer = job.train(
            again, encoder, encoded, _place(folder, "checkpoints-refit"), resume, watch, validate=False, epochs=epochs
        )
    weights = {name: one.detach().cpu().clone() for name, one in trainer.weights().items()}
    model = trainer.model.cpu()
    return Fitted(
        settings=settings,
        data=data,
        split=job.split,
        encoder=encoder,
        encoded=encoded,
        scores=Scorer(model, weights["table"], encoded),
        weights=weights,
        regime=_regime(refit),
        best_epoch=best,
        validation=chosen,
        validation_protocol=job.validation_protocol if settings.task == "topn" and chosen else "",
        history=history,
        limits=job.limits(rows),
        instances=job.instances,
    )


class _Job:
    """One fit's choices, so that the first training and the one after it cannot differ in more than their rows."""

    def __init__(self, data: Dataset, settings: Settings, split: str, options: dict[str, Any], device: str) -> None:
        self.data, self.settings, self.device = data, settings, device
        self.instances: Instances | None = None
        self.history: list[dict[str, Any]] = []
        seed = settings.training.seed
        if settings.task == "implicit":
            self.instances = implicit_instances(data, settings.batches.n_negatives or 2, int(options.get("seed", 0)))
            self.split = self.instances.split
        else:
            self.split = make_split(data, split, task=settings.task, **{"seed": 0, **options})  # type: ignore[arg-type]
        self._seed = seed

    def first_rows(self) -> Rows:
        """What the choice is made on: training rows; the paper's procedure has no validation part."""
        rows = np.sort(np.concatenate([self.split.train, self.split.validation])) if self._as_published() else self.split.train
        if len(rows) == 0:
            raise DataError("the training part is empty; choose another split.")
        return rows

    def again_rows(self, refit: Refit) -> Rows:
        parts = [self.split.train, self.split.validation] + ([self.split.test, self.split.unused] if refit == "all" else [])
        return np.sort(np.concatenate(parts))

    def encode(self, rows: Rows) -> tuple[Encoder, Encoded]:
        interactions = np.unique(self.instances.rows[rows][self.instances.labels[rows] > 0]) if self.instances else rows
        encoder = Encoder.fit(self.data, interactions)
        return encoder, encoder.encode(self.data)

    def train(
        self,
        rows: Rows,
        encoder: Encoder,
        encoded: Encoded,
        place: Path | None,
        resume: bool,
        observer: Observer,
        *,
        validate: bool,
        epochs: int | None = None,
    ) -> Trainer:
        options = self.settings.training if epochs is None else replace(self.settings.training, epochs=epochs)
        trainer = Trainer(self.settings.build(), encoder.n_rows, options, self.device)
        held = newest_checkpoint(place) if place is not None and resume else None
        if held is not None:
            trainer.load_state(*held)
        watch = _Recorder(self, place, trainer.epoch, observer)
        check = self._validate(encoded) if validate else None
        trainer.fit(self._batches(rows, encoder, encoded), check, self._metric(), watch)
        return trainer

    def counted(self, rows: Rows, encoder: Encoder, encoded: Encoded, regime: str) -> Fitted:
        scores = Popularity(self.data.item_numbers[rows], len(self.data.items))
        return Fitted(
            self.settings, self.data, self.split, encoder, encoded, scores, {"counts": torch.from_numpy(scores.counts)}, regime
        )

    def limits(self, rows: Rows) -> tuple[float, float]:
        if self.settings.task != "rating":
            return (-1.0, 1.0)
        labels = self.data.interactions["label"].to_numpy()[rows]
        return float(labels.min()), float(labels.max())

    def stamp(self, folder: Path, resume: bool) -> None:
        """A run folder belongs to one fit: another's checkpoints must not be continued."""
        about = json.dumps(
            {**self.settings.to_dict(), "data": self.data.content_hash, "split": self.split.hash}, sort_keys=True
        )
        path = folder / "fit.json"
        if resume and path.exists() and path.read_text(encoding="utf-8") != about:
            raise OptionError(f"{folder} was begun with other data or settings and cannot be resumed; leave --resume out.")
        if not resume and (folder / "checkpoints").exists():
            for name in ("checkpoints", "checkpoints-refit"):
                for file in sorted((folder / name).glob("*")) if (folder / name).exists() else []:
                    file.unlink()
            (folder / "history.jsonl").unlink(missing_ok=True)
        write_text(path, about)

    def _batches(self, rows: Rows, encoder: Encoder, encoded: Encoded) -> Batches:
        data, options = self.data, self.settings.batches
        if self.settings.task == "topn":
            users, items = data.user_numbers[rows], data.item_numbers[rows]
            known = IdRows.of(encoder, items, len(data.items))
            visible = replace(self.split, train=rows)
            weighted = "weight" in data.interactions.columns
            weights = data.interactions["weight"].to_numpy()[rows].astype(np.float32) if weighted else None
            return RankingBatches(users, items, rows, encoded, known, training_sampler(data, visible), options, weights)
        users, items, labels, interactions = labelled(self.data, self.instances, rows)
        known = IdRows.of(encoder, items[labels > 0] if self.instances else items, len(data.items))
        return LabelledBatches(users, items, labels, interactions, encoded, known, options)

    @property
    def validation_protocol(self) -> str:
        """sampled, or full where a catalogue is too small to leave every user 99 other items."""
        if self._as_published():
            return "paper"
        most = np.bincount(self.data.user_numbers[self.data.positive_rows]).max()
        return "sampled" if len(self.data.seen_items) - most >= N_SAMPLED else "full"

    def _validate(self, encoded: Encoded) -> Validate | None:
        rows = self.split.test if self._as_published() else self.split.validation
        if len(rows) == 0:
            return None

        def validate(model: Model, table: Tensor) -> Mapping[str, float]:
            scores = Scorer(model, table, encoded)
            if self.settings.task == "topn":
                found = evaluate_ranking(scores, self.data, rows, self.validation_protocol).metrics
                return {name: found[name] for name in ("hr@10", "ndcg@10")}
            users, items, labels, interactions = labelled(self.data, self.instances, rows)
            predicted = scores.pairs(users, items[:, None], interactions)[:, 0]
            found = evaluate_labels(
                predicted, labels, self.limits(self.split.train), implicit=self.instances is not None
            ).metrics
            return {**found, "negative_rmse": -found["rmse"]}

        return validate

    def _metric(self) -> str:
        if self.settings.task != "topn":
            return "negative_rmse"
        return "hr@10" if self._as_published() else "ndcg@10"

    def _as_published(self) -> bool:
        return self.settings.preset == "paper" and self.settings.task == "topn"


def labelled(
    data: Dataset, instances: Instances | None, rows: Rows
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.float32], Rows]:
    """users, items, labels and interaction rows: of implicit instances where there are some, else of rated rows."""
    if instances is not None:
        return instances.users[rows], instances.items[rows], instances.labels[rows], instances.rows[rows]
    labels = data.interactions["label"].to_numpy()[rows].astype(np.float32)
    return data.user_numbers[rows], data.item_numbers[rows], labels, rows


class _Recorder:
    """Writes history.jsonl and checkpoints, and hands on to the caller's observer."""

    def __init__(self, job: _Job, place: Path | None, epoch: int, outer: Observer) -> None:
        self._job, self._place, self._outer = job, place, outer
        self._file = place.parent / "history.jsonl" if place is not None and place.name == "checkpoints" else None
        job.history = []
        if self._file is not None and epoch > 0:
            job.history = [one for one in _read_lines(self._file) if one["epoch"] <= epoch]

    def on_step(self, done: int, total: int, loss: float) -> None:
        self._outer.on_step(done, total, loss)

    def on_epoch(self, report: EpochReport, trainer: Trainer) -> None:
        self._job.history.append(report.to_dict())
        if self._file is not None:
            write_text(self._file, "".join(json.dumps(one) + "\n" for one in self._job.history))
        if self._place is not None:
            save_checkpoint(self._place, *trainer.state())
        self._outer.on_epoch(report, trainer)


def _read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def _place(folder: Path | None, name: str) -> Path | None:
    return None if folder is None else folder / name


def _regime(refit: Refit) -> str:
    return "no refit" if not refit else "refit on train + validation" if refit is True else "refit on all rows"


def _device(name: str) -> str:
    if name not in ("auto", "cpu", "cuda"):
        raise OptionError(f"device is '{name}'; expected auto, cpu or cuda.")
    if name == "cuda" and not torch.cuda.is_available():
        raise OptionError("device is 'cuda', but there is none here; use auto or cpu.")
    return "cuda" if name == "auto" and torch.cuda.is_available() else "cpu" if name == "auto" else name
