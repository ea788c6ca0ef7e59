"""Fitting from a Dataset in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from gmlfm.data.dataset import Dataset, Rows
from gmlfm.data.encoding import Encoded, Encoder
from gmlfm.data.splits import make_split
from gmlfm.errors import DataError, OptionError
from gmlfm.evaluation.protocols import evaluate_held_out, evaluate_labels, protocol_for
from gmlfm.fitting.plan import FitInputs, FitPlan
from gmlfm.fitting.run import FitReport, FittedRun, Refit
from gmlfm.models.base import GradientModel, Layout, Positives
from gmlfm.retrieval import Scorer
from gmlfm.training.loop import Validate
from gmlfm.training.sampling.batches import Batches, LabelledBatches, RankingBatches
from gmlfm.training.sampling.groups import IdRows
from gmlfm.training.sampling.negatives import Instances, TrainingNegatives, implicit_instances, training_sampler
from gmlfm.training.settings import Settings

_LARGEST_LABEL = 1e15


class MemoryPlan(FitPlan):
    def __init__(self, data: Dataset, settings: Settings, split: str, options: dict[str, Any], device: str) -> None:
        super().__init__(settings, device)
        self.data = data
        self.instances: Instances | None = None
        self._label_scale = (0.0, 1.0)
        if settings.task == "implicit" and split not in ("leave-one-out", "random"):
            raise OptionError(
                f"the task 'implicit' splits its drawn instances at random, 70/20/10; '{split}' cannot be asked for."
            )
        if settings.task == "implicit":
            self.instances = implicit_instances(data, settings.batches.n_negatives or 2, int(options.get("seed", 0)))
            self.split = self.instances.split
        else:
            self.split = make_split(data, split, task=settings.task, **{"seed": 0, **options})  # type: ignore[arg-type]
        if settings.task == "rating":
            self._label_scale = centre_and_spread(data.interactions["label"].to_numpy()[self.split.train])

    def first(self) -> FitInputs:
        """The paper's procedure has no validation part."""
        rows = np.sort(np.concatenate([self.split.train, self.split.validation])) if self.as_published else self.split.train
        if len(rows) == 0:
            raise DataError("the training part is empty; choose another split.")
        return self._material(rows)

    def again(self, refit: Refit) -> FitInputs:
        parts = [self.split.train, self.split.validation] + ([self.split.test, self.split.unused] if refit == "all" else [])
        return self._material(np.sort(np.concatenate(parts)))

    def label_scale(self) -> tuple[float, float]:
        return self._label_scale

    def fingerprint(self) -> dict[str, Any]:
        return {"data": self.data.content_hash, "split": self.split.hash}

    def finish(self, found: FitReport) -> FittedRun:
        return FittedRun(
            self.settings,
            self.data,
            self.split,
            self._encoder,
            **vars(found),
            validation_protocol=self.validation_protocol if self.settings.task == "topn" and found.validation else "",
            limits=self.limits,
            instances=self.instances,
        )

    def validate(self, material: FitInputs) -> Validate | None:
        rows = self.split.test if self.as_published else self.split.validation
        if len(rows) == 0:
            return None

        def validate(model: GradientModel, table: Tensor) -> Mapping[str, float]:
            scores = Scorer(model, table, material.encoded, material.layout.field_of_row(), self._label_scale)
            if self.settings.task == "topn":
                part = "test" if self.as_published else "validation"
                found = evaluate_held_out(scores, self.data, self.split, part, self._protocol).balanced()
                return {name: found[name] for name in ("hr@10", "ndcg@10")}
            users, items, labels, interactions = labelled(self.data, self.instances, rows)
            predicted = scores.score_pairs(users, items[:, None], interactions)[:, 0]
            return evaluate_labels(predicted, labels, self.limits, implicit=self.instances is not None).metrics

        return validate

    @property
    def validation_protocol(self) -> str:
        n_groups = 0 if self.split.validation_groups is None else len(np.unique(self.split.validation_groups))
        return f"{self._protocol}, mean of {n_groups} groups" if n_groups > 1 and not self.as_published else self._protocol

    @property
    def _protocol(self) -> str:
        return "paper" if self.as_published else protocol_for(self.data)

    def _material(self, rows: Rows) -> FitInputs:
        learned = np.unique(self.instances.rows[rows][self.instances.labels[rows] > 0]) if self.instances else rows
        self._encoder = Encoder.fit(self.data, learned)
        encoded = self._encoder.encode(self.data)
        return FitInputs(
            Layout(self._encoder.fields),
            encoded,
            lambda: self._batches(rows, self._encoder, encoded),
            lambda: self._positives(learned),
        )

    def _positives(self, rows: Rows) -> Positives:
        kept = rows[self.data.interactions["positive"].to_numpy()[rows]]
        users, items = self.data.user_numbers[kept], self.data.item_numbers[kept]
        return Positives(users, items, len(self.data.users), len(self.data.items))

    def _weights(self, rows: Rows) -> npt.NDArray[np.float32] | None:
        if "weight" not in self.data.interactions.columns:
            return None
        return self.data.interactions["weight"].to_numpy()[rows].astype(np.float32)

    @property
    def limits(self) -> tuple[float, float]:
        """Predictions are kept within the training labels."""
        if self.settings.task != "rating":
            return (-1.0, 1.0)
        labels = self.data.interactions["label"].to_numpy()[self.split.train]
        return float(labels.min()), float(labels.max())

    def _batches(self, rows: Rows, encoder: Encoder, encoded: Encoded) -> Batches:
        data, options = self.data, self.settings.batches
        if self.settings.task == "topn":
            users, items = data.user_numbers[rows], data.item_numbers[rows]
            known = IdRows.of(encoder, items, encoded.item)
            sampler = training_sampler(data, replace(self.split, train=rows))
            negatives = TrainingNegatives(sampler, users, options.n_negatives, options.seed, options.fresh)
            times = data.places_in_time[rows]
            return RankingBatches(users, items, rows, encoded, known, negatives, options, self._weights(rows), times)
        users, items, labels, interactions = labelled(self.data, self.instances, rows)
        known = IdRows.of(encoder, items[labels > 0] if self.instances else items, encoded.item)
        centre, spread = self._label_scale
        scaled, times = (labels - centre) / spread, data.places_in_time[interactions]
        return LabelledBatches(users, items, scaled, interactions, encoded, known, options, times)


def centre_and_spread(labels: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Labels are learned from their mean and in their spread, so that a learning rate suits stars as well as prices."""
    if not np.isfinite(labels).all() or np.abs(labels).max() > _LARGEST_LABEL:
        worst = labels[np.argmax(np.where(np.isfinite(labels), np.abs(labels), np.inf))]
        raise DataError(f"a label is {worst:g}; expected numbers up to {_LARGEST_LABEL:g}.")
    return float(labels.mean()), float(labels.std()) or 1.0


def labelled(
    data: Dataset, instances: Instances | None, rows: Rows
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.float32], Rows]:
    """users, items, labels and interaction rows: of implicit instances where there are some, else of rated rows."""
    if instances is not None:
        return instances.users[rows], instances.items[rows], instances.labels[rows], instances.rows[rows]
    labels = data.interactions["label"].to_numpy()[rows].astype(np.float32)
    return data.user_numbers[rows], data.item_numbers[rows], labels, rows
