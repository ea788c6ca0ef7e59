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
from torch import Tensor

from gmlfm.data.attributes import AttributeTable
from gmlfm.data.encoding import Encoded
from gmlfm.data.prepared import PreparedData
from gmlfm.data.restoring import restore
from gmlfm.data.splits import TEST, TRAIN, VALIDATION
from gmlfm.errors import DataError, OptionError
from gmlfm.evaluation.metrics import places, ranking_metrics
from gmlfm.evaluation.protocols import N_SAMPLED, evaluate_labels
from gmlfm.fitting.memory import centre_and_spread
from gmlfm.fitting.plan import FitInputs, FitPlan
from gmlfm.fitting.run import FitReport, FittedRun, Refit
from gmlfm.models.base import GradientModel, Layout, Positives
from gmlfm.retrieval import Scorer
from gmlfm.training.loop import Validate
from gmlfm.training.sampling.batches import ShardBatches
from gmlfm.training.sampling.groups import user_side_of
from gmlfm.training.sampling.negatives import NegativeSampler
from gmlfm.training.settings import Settings

_MOST_TESTED = 20_000


class ShardPlan(FitPlan):
    def __init__(self, data: PreparedData, settings: Settings, split: str, options: dict[str, Any], device: str) -> None:
        super().__init__(settings, device)
        if options or split not in (data.info.split, "leave-one-out"):
            raise OptionError(f"{data.folder} is split already ({data.info.split}); leave the split out, or prepare it anew.")
        if settings.task == "implicit" or settings.preset == "paper":
            raise OptionError("a prepared folder serves the tasks topn and rating, without the preset 'paper'.")
        if settings.task == "rating" and "label" not in data.info.columns:
            raise DataError(f"{data.folder} has no label, which the task 'rating' predicts.")
        self.data = data
        self._encoded = Encoded(data.users, _nothing(), data.items)
        self._protocol = ""
        _ = data.values  # a folder that is not whole is better told of before training than after
        self._label_scale = (0.0, 1.0)
        if settings.task == "rating":
            self._label_scale = centre_and_spread(np.concatenate(list(self._labels())))

    def first(self) -> FitInputs:
        return self._material((TRAIN,))

    def again(self, refit: Refit) -> FitInputs:
        return self._material((TRAIN, VALIDATION, TEST) if refit == "all" else (TRAIN, VALIDATION))

    def label_scale(self) -> tuple[float, float]:
        return self._label_scale

    def fingerprint(self) -> dict[str, Any]:
        return {"prepared": self.data.info.source_hash, "split": self.data.info.split}

    def finish(self, found: FitReport) -> FittedRun:
        data, split, encoder = restore(self.data)
        encoded = encoder.encode(data)
        scores = found.scores.over(encoded) if isinstance(found.scores, Scorer) else found.scores
        values = {**vars(found), "encoded": encoded, "scores": scores}
        return FittedRun(
            self.settings,
            data,
            split,
            encoder,
            **values,
            validation_protocol=self._protocol,
            limits=self._limits(),
        )

    def validate(self, material: FitInputs) -> Validate | None:
        total = sum(one.validation for one in self.data.info.interactions)
        if total == 0:
            return None
        held = self._held_out(min(1.0, _MOST_TESTED / total))
        limits = self._limits()
        if self.settings.task == "topn":
            self._protocol = f"{held.items.shape[1] - 1} sampled, {len(held.labels):,} of {total:,} rows"

        def validate(model: GradientModel, table: Tensor) -> Mapping[str, float]:
            scores = Scorer(model, table, material.encoded, material.layout.field_of_row(), self._label_scale)
            found = scores.score_pairs_for(held.user_side, held.items)
            if self.settings.task == "topn":
                queries = ranking_metrics(places(found[:, 0], found[:, 1:]), 10)
                return {name: float(queries[name].mean()) for name in ("hr@10", "ndcg@10")}
            return evaluate_labels(found[:, 0], held.labels, limits, implicit=False).metrics

        return validate

    def _material(self, parts: tuple[int, ...]) -> FitInputs:
        options = self.settings.batches
        return FitInputs(
            Layout(self.data.info.fields),
            self._encoded,
            lambda: ShardBatches(self.data, options, parts, task=self.settings.task, label_scale=self._label_scale),
            lambda: self._positives(parts),
        )

    def _positives(self, parts: tuple[int, ...]) -> Positives:
        users, items = [], []
        for shard in self.data.shards():
            kept = np.isin(shard.parts, parts) & shard.columns["positive"].to_numpy()
            users.append(shard.users[kept])
            items.append(shard.items[kept])
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
        seen = np.zeros(self.data.info.n_items, bool)
        for shard in self.data.shards():
            seen[shard.items] = True
        candidates = np.flatnonzero(seen).astype(np.int32)
        user_side, items, labels = [], [], []
        n = N_SAMPLED  # fewer where a user leaves fewer
        for number, shard in enumerate(self.data.shards()):
            rng = np.random.default_rng([2, number])
            positive = shard.columns["positive"].to_numpy()
            wanted = positive if self.settings.task == "topn" else shard.columns["label"].is_not_null().to_numpy()
            rows = np.flatnonzero((shard.parts == VALIDATION) & wanted & (rng.random(len(shard.parts)) < share))
            if len(rows) == 0:
                continue
            encoded = Encoded(self.data.users, shard.context, self.data.items)
            user_side.append(user_side_of(encoded, shard.users[rows], rows))
            if self.settings.task == "topn":
                first = int(shard.users.min())
                local = (shard.users - first).astype(np.int32)
                sampler = NegativeSampler(local[positive], shard.items[positive], int(local.max()) + 1, candidates)
                n = min(n, int(sampler.free(local[rows]).min()))
                drawn = sampler.draw_distinct(local[rows], n, rng)
                items.append(np.concatenate([shard.items[rows][:, None], drawn], axis=1))
                labels.append(np.ones(len(rows), np.float32))
            else:
                items.append(shard.items[rows][:, None])
                labels.append(shard.columns["label"].to_numpy()[rows].astype(np.float32))
        if not user_side:
            raise DataError(f"{self.data.folder} holds no validation rows for the task '{self.settings.task}'.")
        whole = AttributeTable(
            np.concatenate([one.ids for one in user_side]), np.concatenate([one.values for one in user_side])
        )
        return _HeldOut(whole, np.concatenate([one[:, : n + 1] for one in items]), np.concatenate(labels))


@dataclass(frozen=True)
class _HeldOut:
    user_side: AttributeTable
    items: npt.NDArray[np.int32]
    labels: npt.NDArray[np.float32]


def _nothing() -> AttributeTable:
    return AttributeTable(np.empty((0, 0), np.int32), np.empty((0, 0), np.float32))
