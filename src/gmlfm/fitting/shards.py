"""Fitting from a prepared folder: training holds one shard at a time.

Validation is over a seeded sample of the held-out rows. What the run keeps at the end, for recommending, are the
interactions as numbers: some twenty bytes each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gmlfm.data.attributes import AttributeTable
from gmlfm.data.encoding import Encoded
from gmlfm.data.prepared import PreparedData
from gmlfm.data.restoring import restore
from gmlfm.data.splits import TEST, TRAIN, VALIDATION
from gmlfm.errors import DataError, OptionError
from gmlfm.evaluation.candidates import N_SAMPLED
from gmlfm.evaluation.metrics import default_metric
from gmlfm.evaluation.protocols import evaluate_labels, rank_sampled
from gmlfm.fitting.labels import centre_and_spread
from gmlfm.fitting.plan import FitPlan
from gmlfm.fitting.run import FittedRun, Refit
from gmlfm.models.base import FitInputs, FitReport, Layout, Model, Positives, Ratings, UserSide
from gmlfm.training.sampling.negatives import NegativeSampler
from gmlfm.training.sampling.shards import ShardBatches
from gmlfm.training.settings import Settings
from gmlfm.training.trainer import Validate

_MOST_TESTED = 20_000
_PARTS = {Refit.NONE: (TRAIN,), Refit.VALIDATION: (TRAIN, VALIDATION), Refit.ALL: (TRAIN, VALIDATION, TEST)}


class ShardPlan(FitPlan):
    def __init__(self, data: PreparedData, settings: Settings, split: str, options: dict[str, Any], device: str) -> None:
        super().__init__(settings, device)
        if options or split not in (data.info.split, "leave-one-out"):
            raise OptionError(f"{data.folder} is split already ({data.info.split}); leave the split out, or prepare it anew.")
        if settings.task == "implicit" or settings.preset == "paper":
            raise OptionError("a prepared folder serves the tasks topn and rating, without the preset 'paper'.")
        if settings.info.cls.inputs.labels:
            raise OptionError(f"the model '{settings.model}' learns user by user and cannot read a prepared folder.")
        if settings.task == "rating" and "label" not in data.info.columns:
            raise DataError(f"{data.folder} has no label, which the task 'rating' predicts.")
        self.data = data
        self._encoded = Encoded(data.users, _no_attributes(), data.items)
        self._protocol = ""
        _ = data.values  # a folder that is not complete is refused before training rather than after
        self._label_scale = (0.0, 1.0)
        if settings.task == "rating":
            self._label_scale = centre_and_spread(np.concatenate(list(self._labels())))

    def selection_inputs(self) -> FitInputs:
        return self._inputs(_PARTS[Refit.NONE])

    def refit_inputs(self, refit: Refit) -> FitInputs:
        return self._inputs(_PARTS[refit])

    def fingerprint(self) -> dict[str, Any]:
        return {"prepared": self.data.info.source_hash, "split": self.data.info.split}

    @property
    def validation_protocol(self) -> str:
        return self._protocol

    def finish(self, model: Model, inputs: FitInputs, refit: Refit, report: FitReport) -> FittedRun:
        data, split, encoder = restore(self.data)
        encoded = encoder.encode(data)
        limits, scale = self._limits(), self._label_scale
        run = FittedRun(self.settings, data, split, encoder, encoded, model, refit, report, limits, scale)
        model.attach(run.inputs)
        return run

    def validator(self, inputs: FitInputs) -> Validate | None:
        total = sum(shard.validation for shard in self.data.info.interactions)
        if total == 0:
            return None
        sample = self._held_out(min(1.0, _MOST_TESTED / total))
        limits = self._limits()
        if self.settings.task == "topn":
            self._protocol = f"{sample.items.shape[1] - 1} sampled, {len(sample.labels):,} of {total:,} rows"

        def validate(model: Model) -> Mapping[str, float]:
            scores = model.over(inputs.items).score_pairs(sample.users, sample.items)
            if self.settings.task == "topn":
                queries = rank_sampled(scores)
                return {name: float(queries[name].mean()) for name in map(default_metric, ("hr", "ndcg"))}
            return evaluate_labels(scores[:, 0], sample.labels, limits, implicit=False).metrics

        return validate

    def _inputs(self, parts: tuple[int, ...]) -> FitInputs:
        options, task, scale = self.settings.batches, self.settings.task, self._label_scale
        return FitInputs(
            Layout(self.data.info.fields),
            self._encoded,
            positives=lambda: self._positives(parts),
            ratings=_no_ratings,
            batches=lambda: ShardBatches(self.data, options, parts, task=task, label_scale=scale),
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

    def _held_out(self, share: float) -> _HeldOut:
        """Validation rows, thinned to `share`, for top-n each with 99 items that are none of the user's positives."""
        is_seen = np.zeros(self.data.info.n_items, bool)
        for shard in self.data.shards():
            is_seen[shard.items] = True
        candidates = np.flatnonzero(is_seen).astype(np.int32)
        user_sides, numbers, items, labels = [], [], [], []
        n = N_SAMPLED  # fewer where a user leaves fewer
        for number, shard in enumerate(self.data.shards()):
            rng = np.random.default_rng([2, number])
            is_positive = shard.columns["positive"].to_numpy()
            is_target = is_positive if self.settings.task == "topn" else shard.columns["label"].is_not_null().to_numpy()
            rows = np.flatnonzero((shard.parts == VALIDATION) & is_target & (rng.random(len(shard.parts)) < share))
            if len(rows) == 0:
                continue
            encoded = Encoded(self.data.users, shard.context, self.data.items)
            user_sides.append(encoded.user_side(shard.users[rows], rows))
            numbers.append(shard.users[rows])
            if self.settings.task == "topn":
                local = (shard.users - int(shard.users.min())).astype(np.int32)
                sampler = NegativeSampler(local[is_positive], shard.items[is_positive], int(local.max()) + 1, candidates)
                n = min(n, int(sampler.free(local[rows]).min()))
                drawn = sampler.draw_distinct(local[rows], n, rng)
                items.append(np.concatenate([shard.items[rows][:, None], drawn], axis=1))
                labels.append(np.ones(len(rows), np.float32))
            else:
                items.append(shard.items[rows][:, None])
                labels.append(shard.columns["label"].to_numpy()[rows].astype(np.float32))
        if not user_sides:
            raise DataError(f"{self.data.folder} holds no validation rows for the task '{self.settings.task}'.")
        attributes = AttributeTable(
            np.concatenate([side.ids for side in user_sides]), np.concatenate([side.values for side in user_sides])
        )
        users = UserSide(np.concatenate(numbers).astype(np.int32), attributes)
        return _HeldOut(users, np.concatenate([block[:, : n + 1] for block in items]), np.concatenate(labels))


@dataclass(frozen=True)
class _HeldOut:
    users: UserSide
    items: npt.NDArray[np.int32]
    labels: npt.NDArray[np.float32]


def _no_attributes() -> AttributeTable:
    return AttributeTable(np.empty((0, 0), np.int32), np.empty((0, 0), np.float32))


def _no_ratings() -> Ratings:
    raise OptionError("a prepared folder holds no user's ratings together.")
