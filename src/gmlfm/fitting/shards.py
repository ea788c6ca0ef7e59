"""Fitting from a prepared folder: training holds one shard at a time.

Validation is over a seeded sample of the held-out rows. What the run keeps at the end, for recommending, are the
interactions as numbers: some twenty bytes each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from gmlfm.data.attributes import AttributeTable
from gmlfm.data.encoding import Encoded
from gmlfm.data.prepared import PreparedData
from gmlfm.data.refitting import RefittedData
from gmlfm.data.restoring import restore
from gmlfm.data.splits import AUTO, TEST, TRAIN, VALIDATION
from gmlfm.errors import DataError, OptionError
from gmlfm.evaluation.metrics import default_metric
from gmlfm.evaluation.protocols import evaluate_labels, rank_sampled
from gmlfm.fitting.held_out import held_out
from gmlfm.fitting.labels import centre_and_spread
from gmlfm.fitting.plan import FitPlan
from gmlfm.fitting.run import FittedRun, Refit
from gmlfm.models.base import FitInputs, FitReport, Layout, Model, Positives, Ratings
from gmlfm.training.sampling.shards import ShardBatches
from gmlfm.training.settings import Settings
from gmlfm.training.trainer import Validate

_PARTS = {Refit.NONE: (TRAIN,), Refit.VALIDATION: (TRAIN, VALIDATION), Refit.ALL: (TRAIN, VALIDATION, TEST)}


class ShardPlan(FitPlan):
    def __init__(self, data: PreparedData, settings: Settings, split: str, options: dict[str, Any], device: str) -> None:
        super().__init__(settings.without_history(), device)
        if options or split not in (data.info.split, AUTO):
            raise OptionError(f"{data.folder} is split already ({data.info.split}); leave the split out, or prepare it anew.")
        if settings.task == "implicit" or settings.preset == "paper":
            raise OptionError("a prepared folder serves the tasks topn and rating, without the preset 'paper'.")
        if settings.history.roles:
            raise OptionError(
                f"history is '{settings.history.history}', which training from a prepared folder does not read; leave it out, "
                "or train from the data in memory."
            )
        needs_order = settings.info.cls.needs_order(settings.options)
        if needs_order and "time" not in data.info.columns:
            raise OptionError(f"{needs_order}, but {data.folder} was prepared from data without times; leave it out.")
        if settings.info.cls.inputs.labels:
            raise OptionError(f"the model '{settings.model}' learns user by user and cannot read a prepared folder.")
        if settings.info.cls.reads_sequences:
            raise OptionError(
                f"the model '{settings.model}' reads users' events in order, which a prepared folder does not keep together; "
                "train it from the data themselves."
            )
        if settings.task == "rating" and "label" not in data.info.columns:
            raise DataError(f"{data.folder} has no label, which the task 'rating' predicts.")
        self.data = data
        self._refitted: RefittedData | None = None
        self._protocol = ""
        _ = data.values  # a folder that is not complete is refused before training rather than after
        self._label_scale = (0.0, 1.0)
        if settings.task == "rating":
            self._label_scale = centre_and_spread(np.concatenate(list(self._labels())))

    def selection_inputs(self) -> FitInputs:
        return self._inputs(self.data, _PARTS[Refit.NONE])

    def refit_inputs(self, refit: Refit) -> FitInputs:
        """Encoded anew: ids and context values that the training part alone lacks have rows of their own."""
        self._refitted = RefittedData(self.data, _PARTS[refit])
        return self._inputs(self._refitted, _PARTS[refit])

    def fingerprint(self) -> dict[str, Any]:
        return {"prepared": self.data.info.source_hash, "split": self.data.info.split}

    @property
    def validation_protocol(self) -> str:
        return self._protocol

    def finish(self, model: Model, inputs: FitInputs, refit: Refit, report: FitReport) -> FittedRun:
        trained_on = self.data if refit is Refit.NONE or self._refitted is None else self._refitted
        data, split, encoder = restore(trained_on, self.settings.task)  # type: ignore[arg-type]
        encoded = encoder.encode(data)
        limits, scale = self._limits(), self._label_scale
        run = FittedRun(self.settings, data, split, encoder, encoded, model, refit, report, limits, scale)
        model.attach(run.inputs)
        if self._refitted is not None:
            self._refitted.remove_cache()
        return run

    def validator(self, inputs: FitInputs) -> Validate | None:
        sample = held_out(self.data, self.settings.task)
        if sample is None:
            return None
        limits, is_missing = self._limits(), sample.items < 0
        items = np.where(is_missing, sample.items[:, :1], sample.items)
        if self.settings.task == "topn":
            self._protocol = f"{items.shape[1] - 1} sampled, {len(items):,} of {sample.n_rows:,} rows"

        def validate(model: Model) -> Mapping[str, float]:
            scored = model.over(inputs.items) if model.learns_in_epochs else model
            scores = scored.score_pairs(sample.users, items)
            if self.settings.task == "topn":
                queries = rank_sampled(np.where(is_missing, np.float32(-np.inf), scores))
                return {name: float(queries[name].mean()) for name in map(default_metric, ("hr", "ndcg"))}
            return evaluate_labels(scores[:, 0], sample.labels, limits, implicit=False).metrics

        return validate

    def _inputs(self, data: PreparedData, parts: tuple[int, ...]) -> FitInputs:
        options, task, scale = self.settings.batches, self.settings.task, self._label_scale
        return FitInputs(
            Layout(data.info.fields),
            Encoded(data.users, _no_attributes(), data.items),
            positives=lambda: self._positives(parts),
            ratings=_no_ratings,
            batches=lambda: ShardBatches(data, options, parts, task=task, label_scale=scale),
            label_scale=scale,
        )

    def _positives(self, parts: tuple[int, ...]) -> Positives:
        users, items = [], []
        for shard in self.data.shards():
            is_positive = np.isin(shard.parts, parts) & shard.columns["positive"].to_numpy()
            users.append(shard.users[is_positive])
            items.append(shard.items[is_positive])
        return Positives(np.concatenate(users), np.concatenate(items), self.data.info.n_users, self.data.info.n_items)

    def _limits(self) -> tuple[float, float]:
        if self.settings.task != "rating":
            return (-1.0, 1.0)
        labels = np.concatenate(list(self._labels()))
        return float(labels.min()), float(labels.max())

    def _labels(self) -> Iterator[npt.NDArray[np.float64]]:
        for shard in self.data.shards():
            yield shard.columns["label"].to_numpy()[(shard.parts == TRAIN) & shard.columns["label"].is_not_null().to_numpy()]


def _no_attributes() -> AttributeTable:
    return AttributeTable(np.empty((0, 0), np.int32), np.empty((0, 0), np.float32))


def _no_ratings() -> Ratings:
    raise OptionError("a prepared folder holds no user's ratings together.")
