"""Fitting from a Dataset in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gmlfm.data.dataset import Dataset, Rows
from gmlfm.data.encoding import Encoder
from gmlfm.data.histories import Histories, is_ordered, visible_rows
from gmlfm.data.splits import AUTO, make_split
from gmlfm.errors import DataError, OptionError
from gmlfm.evaluation.metrics import default_metric
from gmlfm.evaluation.protocols import evaluate_held_out, evaluate_labels, protocol_for
from gmlfm.fitting.labels import centre_and_spread, labelled
from gmlfm.fitting.plan import FitPlan
from gmlfm.fitting.run import (
    FittedRun,
    Refit,
    history_spec,
    learned_interactions,
    learned_rows,
    positives_of,
    ratings_of,
)
from gmlfm.fitting.training_rows import TrainingRows
from gmlfm.models.base import FitInputs, FitReport, Layout, Model
from gmlfm.retrieval import ModelRanker
from gmlfm.training.sampling.availability import row_availability
from gmlfm.training.sampling.instances import Instances, implicit_instances
from gmlfm.training.settings import Settings
from gmlfm.training.trainer import Validate


class MemoryPlan(FitPlan):
    def __init__(self, data: Dataset, settings: Settings, split: str, options: dict[str, Any], device: str) -> None:
        super().__init__(settings, device)
        self.data = data
        self.instances: Instances | None = None
        self._label_scale = (0.0, 1.0)
        self._histories_of: dict[str, Histories] = {}
        if settings.task == "implicit" and split not in (AUTO, "random"):
            raise OptionError(
                f"the task 'implicit' splits its drawn instances at random, 70/20/10; '{split}' cannot be asked for."
            )
        if settings.task == "implicit":
            n_negatives, seed = settings.batches.n_negatives or 2, int(options.get("seed", 0))
            self.instances = implicit_instances(data, n_negatives, seed, as_published=settings.preset == "paper")
            self.split = self.instances.split
        else:
            split = "leave-one-out" if settings.as_published and split == AUTO else split  # as the paper splits
            self.split = make_split(data, split, task=settings.task, **{"seed": 0, **options})  # type: ignore[arg-type]
        self._availability = row_availability(data, self.split.name)
        self.settings = settings.for_data(
            is_ordered=is_ordered(data),
            n_candidates=len(data.seen_items),
            changes_with_time=self._availability is not None,
        )
        if settings.task == "rating":
            self._label_scale = centre_and_spread(data.interactions["label"].to_numpy()[self.split.train])
        self._training = TrainingRows(data, self.settings, self.split.name, self.instances, self._label_scale)

    def selection_inputs(self) -> FitInputs:
        rows = learned_rows(self.split, self.settings, Refit.NONE)
        if len(rows) == 0:
            raise DataError("the training part is empty; choose another split.")
        return self._inputs(rows)

    def refit_inputs(self, refit: Refit) -> FitInputs:
        return self._inputs(learned_rows(self.split, self.settings, refit))

    def fingerprint(self) -> dict[str, Any]:
        return {"data": self.data.content_hash, "split": self.split.hash}

    def finish(self, model: Model, inputs: FitInputs, refit: Refit, report: FitReport) -> FittedRun:
        return FittedRun(
            self.settings,
            self.data,
            self.split,
            self._encoder,
            inputs.encoded,
            model,
            refit,
            report,
            self._limits,
            self._label_scale,
            self.instances,
        )

    def validator(self, inputs: FitInputs) -> Validate | None:
        published = self.settings.as_published
        rows = self.split.test if published else self.split.validation
        if len(rows) == 0:
            return None

        def validate(model: Model) -> Mapping[str, float]:
            scorer = model.over(inputs.items) if model.learns_in_epochs else model
            ranker = ModelRanker(scorer, inputs.encoded, histories=self._histories("test" if published else "validation"))
            if self.settings.task == "topn":
                part = "test" if published else "validation"
                metrics = evaluate_held_out(ranker, self.data, self.split, part, self._protocol).balanced()
                return {name: metrics[name] for name in map(default_metric, ("hr", "ndcg"))}
            users, items, labels, interactions = labelled(self.data, self.instances, rows)
            predicted = ranker.score_pairs(users, items[:, None], interactions)[:, 0]
            return evaluate_labels(predicted, labels, self._limits, implicit=self.instances is not None).metrics

        return validate

    @property
    def validation_protocol(self) -> str:
        if self.settings.task != "topn":
            return ""
        n_groups = 0 if self.split.validation_groups is None else len(np.unique(self.split.validation_groups))
        is_mean = n_groups > 1 and not self.settings.as_published
        return f"{self._protocol}, mean of {n_groups} groups" if is_mean else self._protocol

    @property
    def _protocol(self) -> str:
        return "paper" if self.settings.as_published else protocol_for(self.data, self.split)

    def _histories(self, part: str) -> Histories | None:
        """What the rows of a part see; the instances of the task implicit have no place in time."""
        if self.instances is not None:
            return None
        if part not in self._histories_of:
            self._histories_of[part] = Histories.of(self.data, visible_rows(self.split, part))
        return self._histories_of[part]

    def _inputs(self, rows: Rows) -> FitInputs:
        interactions = learned_interactions(rows, self.instances)
        options, published = self.settings.history, self.settings.preset == "paper"
        encoder = self._encoder = Encoder.fit(
            self.data, interactions, all_ids=published, user_ids=self.settings.has_user_ids, roles=options.roles
        )
        encoded = encoder.encode(self.data)
        return FitInputs(
            Layout(encoder.fields),
            encoded,
            positives=lambda: positives_of(self.data, interactions),
            ratings=lambda: ratings_of(self.data, interactions),
            batches=lambda: self._training.batches(rows, encoder, encoded),
            label_scale=self._label_scale,
            history=history_spec(encoder, self.settings),
        )

    @property
    def _limits(self) -> tuple[float, float]:
        """Predictions are kept within the training labels."""
        if self.settings.task != "rating":
            return (-1.0, 1.0)
        labels = self.data.interactions["label"].to_numpy()[self.split.train]
        return float(labels.min()), float(labels.max())
