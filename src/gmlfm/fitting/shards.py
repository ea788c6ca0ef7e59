"""Fitting from a prepared folder: training holds one shard at a time.

Validation is over a seeded sample of the held-out rows. What the run keeps at the end, for recommending, are the
interactions as numbers: some twenty bytes each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from gmlfm.data.attributes import AttributeTable, FieldCode, with_roles
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
from gmlfm.fitting.run import FittedRun, Refit, sequence_spec, spec_of
from gmlfm.models.base import FitInputs, FitReport, Layout, Model, Positives, Ratings
from gmlfm.training.sampling.history_shards import HistoryShards
from gmlfm.training.sampling.shards import ShardBatches
from gmlfm.training.settings import Settings
from gmlfm.training.trainer import Validate

_PARTS = {Refit.NONE: (TRAIN,), Refit.VALIDATION: (TRAIN, VALIDATION), Refit.ALL: (TRAIN, VALIDATION, TEST)}


class ShardPlan(FitPlan):
    def __init__(self, data: PreparedData, settings: Settings, split: str, options: dict[str, Any], device: str) -> None:
        super().__init__(settings, device)
        if options or split not in (data.info.split, AUTO):
            raise OptionError(f"{data.folder} is split already ({data.info.split}); leave the split out, or prepare it anew.")
        if settings.task == "implicit" or settings.preset == "paper":
            raise OptionError("a prepared folder serves the tasks topn and rating, without the preset 'paper'.")
        if settings.info.cls.inputs.labels:
            raise OptionError(f"the model '{settings.model}' learns user by user and cannot read a prepared folder.")
        if settings.task == "rating" and "label" not in data.info.columns:
            raise DataError(f"{data.folder} has no label, which the task 'rating' predicts.")
        self.data = data
        self._views: dict[Refit, PreparedData] = {}
        self._protocol = ""
        if settings.may_read_history:
            self.settings = settings.for_data(
                is_ordered=data.is_ordered,
                n_candidates=int(data.occurrences.is_seen.sum()),
                changes_with_time=data.row_bounds is not None,
            )
        _ = data.values  # a folder that is not complete is refused before training rather than after
        self._label_scale = (0.0, 1.0)
        if settings.task == "rating":
            self._label_scale = centre_and_spread(np.concatenate(list(self._labels())))

    def selection_inputs(self) -> FitInputs:
        return self._inputs(Refit.NONE)

    def refit_inputs(self, refit: Refit) -> FitInputs:
        """Encoded anew: ids and context values that the training part alone lacks have rows of their own."""
        return self._inputs(refit)

    def _view(self, refit: Refit) -> PreparedData:
        """The folder in the rows of the encoder of these parts; where a user has no row of their own, all others move."""
        if refit not in self._views:
            user_ids = self.settings.has_user_ids
            is_folder = refit is Refit.NONE and user_ids
            self._views[refit] = self.data if is_folder else RefittedData(self.data, _PARTS[refit], user_ids=user_ids)
        return self._views[refit]

    def _fields(self, data: PreparedData) -> tuple[FieldCode, ...]:
        return with_roles(data.info.fields, self.settings.history.roles)

    def fingerprint(self) -> dict[str, Any]:
        return {"prepared": self.data.info.source_hash, "split": self.data.info.split}

    @property
    def validation_protocol(self) -> str:
        return self._protocol

    def finish(self, model: Model, inputs: FitInputs, refit: Refit, report: FitReport) -> FittedRun:
        data, split, encoder = restore(self._view(refit), self.settings.task)  # type: ignore[arg-type]
        encoder = encoder.with_roles(self.settings.history.roles)
        encoded = encoder.encode(data)
        limits, scale = self._limits(), self._label_scale
        run = FittedRun(self.settings, data, split, encoder, encoded, model, refit, report, limits, scale)
        model.attach(run.inputs)
        for view in self._views.values():
            if isinstance(view, RefittedData):
                view.remove_cache()
        return run

    def validator(self, inputs: FitInputs) -> Validate | None:
        sample = held_out(self._view(Refit.NONE), self.settings.task)
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

    def _inputs(self, refit: Refit) -> FitInputs:
        data, fields = self._view(refit), self._fields(self._view(refit))
        return FitInputs(
            Layout(fields),
            Encoded(data.users, _no_attributes(), data.items),
            positives=lambda: self._positives(_PARTS[refit]),
            ratings=_no_ratings,
            batches=lambda: self._batches(data, refit),
            label_scale=self._label_scale,
            history=spec_of(fields, self.settings),
        )

    def _batches(self, data: PreparedData, refit: Refit) -> ShardBatches:
        settings, parts, fields = self.settings, _PARTS[refit], self._fields(data)
        options, task, scale = settings.batches, settings.task, self._label_scale
        reads_sequences, spec = settings.info.cls.reads_sequences, spec_of(fields, settings)
        if reads_sequences:
            spec = sequence_spec(settings)
        if spec is None:
            return ShardBatches(data, options, parts, task=task, label_scale=scale)
        return HistoryShards(
            data,
            options,
            spec,
            settings.history,
            parts,
            task=task,
            label_scale=scale,
            fields=fields,
            shares_negatives=settings.shares_negatives,
            reads_sequences=reads_sequences,
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
