"""What a fit leaves behind, and what it has learned from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from gmlfm.data.attributes import AttributeTable, FieldCode, item_block
from gmlfm.data.dataset import Dataset, Rows
from gmlfm.data.encoding import Encoded, Encoder
from gmlfm.data.histories import Histories, visible_rows
from gmlfm.data.splits import Split
from gmlfm.errors import OptionError
from gmlfm.models.base import FitInputs, FitReport, HistorySpec, Layout, Model, Positives, Ratings
from gmlfm.retrieval import ModelRanker
from gmlfm.training.sampling.instances import Instances
from gmlfm.training.settings import Settings


class Refit(Enum):
    """Which held-out rows a model was trained on again, after every choice was made on validation."""

    NONE = "none"
    VALIDATION = "validation"
    ALL = "all"

    @classmethod
    def parse(cls, refit: bool | str | Refit) -> Refit:
        """As a caller says it: False, True or 'all'."""
        if isinstance(refit, Refit):
            return refit
        choices = {False: cls.NONE, True: cls.VALIDATION, "all": cls.ALL}
        if not isinstance(refit, bool | str) or refit not in choices:
            raise OptionError(f"refit is {refit!r}; expected nothing, true or all.")
        return choices[refit]

    @property
    def label(self) -> str:
        labels = {Refit.NONE: "no refit", Refit.VALIDATION: "refit on train + validation", Refit.ALL: "refit on all rows"}
        return labels[self]


def learned_rows(split: Split, settings: Settings, refit: Refit) -> Rows:
    """The rows that a run has learned from: of the interactions or, for the task implicit, of its instances.

    The published procedure has no validation part: it trains on those rows from the start.
    """
    parts = [split.train]
    if refit is not Refit.NONE or settings.as_published:
        parts.append(split.validation)
    if refit is Refit.ALL:
        parts += [split.test, split.unused]
    return np.sort(np.concatenate(parts))


def learned_interactions(rows: Rows, instances: Instances | None) -> Rows:
    """The interactions behind learned rows; of instances, those of the positive ones."""
    return rows if instances is None else np.unique(instances.rows[rows][instances.labels[rows] > 0])


def history_spec(encoder: Encoder, settings: Settings) -> HistorySpec | None:
    """How histories are read: the encoder has rows for their roles, or there are none."""
    return spec_of(encoder.fields, settings) if encoder.roles else None


def spec_of(fields: Sequence[FieldCode], settings: Settings) -> HistorySpec | None:
    """The same by the fields, with those of the roles or without, for settings whose roles are decided."""
    options = settings.history
    if not options.roles:
        return None
    user = next(code for code in fields if code.part == "user" and code.kind == "id")
    has_newcomers = options.newcomer_row and settings.batches.cold_start_rate > 0
    return HistorySpec(
        options.roles,
        options.half_life,
        options.history_length,
        item_block(fields),
        with_own=settings.info.cls.earlier_by_own_rows,
        newcomer=(user.unknown_row, user.missing_row) if has_newcomers else None,
    )


def sequence_spec(settings: Settings) -> HistorySpec:
    """Of a model that reads sequences, which has no roles: how many events it reads."""
    return HistorySpec((), 1.0, settings.option("length"), 0)


def positives_of(data: Dataset, rows: Rows) -> Positives:
    """The positives among some interactions."""
    chosen = rows[data.interactions["positive"].to_numpy()[rows]]
    return Positives(data.user_numbers[chosen], data.item_numbers[chosen], len(data.users), len(data.items))


def ratings_of(data: Dataset, rows: Rows) -> Ratings:
    """The labels of some interactions, as far as they have one."""
    rated = rows[data.interactions["label"].is_not_null().to_numpy()[rows]]
    labels = data.interactions["label"].to_numpy()[rated].astype(np.float32)
    return Ratings(data.user_numbers[rated], data.item_numbers[rated], labels)


@dataclass(frozen=True)
class FittedRun:
    """Everything that scoring, evaluating and saving need. It never changes: what changes a run makes another one.

    limits: of the training labels, within which predictions are kept; label_scale: their centre and spread.
    extra_items: numbers that may be recommended though no interaction names them; n_added_items: how many of them came after
    the fit; updates: what each update learned, the first one first.
    """

    settings: Settings
    data: Dataset
    split: Split
    encoder: Encoder
    encoded: Encoded
    model: Model
    refit: Refit
    report: FitReport
    limits: tuple[float, float] = (-1.0, 1.0)
    label_scale: tuple[float, float] = (0.0, 1.0)
    instances: Instances | None = None
    extra_items: tuple[int, ...] = ()
    n_added_items: int = 0
    updates: tuple[Mapping[str, Any], ...] = ()

    @cached_property
    def ranker(self) -> ModelRanker:
        """Scores of the data's own users and items, from all that users did."""
        return ModelRanker(self.model, self.encoded, histories=self.histories)

    def ranker_of(self, part: str) -> ModelRanker:
        """As of the rows of a part, which see earlier rows alone, and of those the ones that are visible to their part."""
        histories = self.histories_of(part)
        return self.ranker if histories is None else ModelRanker(self.model, self.encoded, histories=histories)

    def histories_of(self, part: str) -> Histories | None:
        """What the rows of a part may see; None where that is all there is."""
        if self.instances is not None or not self.model.reads_history:
            return None
        return Histories.of(self.data, visible_rows(self.split, part))

    @cached_property
    def histories(self) -> Histories:
        """All rows there are, test rows included: what somebody who asks now did before."""
        return Histories.of(self.data)

    @cached_property
    def unknown_user(self) -> AttributeTable:
        """The attributes of somebody of whom nothing is known, (1, F)."""
        return self.encoder.encode_part("user", None, pl.DataFrame(), 1)

    @cached_property
    def learned_rows(self) -> Rows:
        return learned_rows(self.split, self.settings, self.refit)

    @property
    def learned_interactions(self) -> Rows:
        return learned_interactions(self.learned_rows, self.instances)

    @property
    def inputs(self) -> FitInputs:
        """What scoring reads beside the weights, and what a closed-form model is fitted on."""
        rows, data = self.learned_interactions, self.data
        return FitInputs(
            Layout(self.encoder.fields),
            self.encoded,
            positives=lambda: positives_of(data, rows),
            ratings=lambda: ratings_of(data, rows),
            label_scale=self.label_scale,
            history=history_spec(self.encoder, self.settings),
        )

    @property
    def best_epoch(self) -> int:
        return self.report.best_epoch

    @property
    def validation(self) -> dict[str, float]:
        return self.report.validation

    @property
    def validation_protocol(self) -> str:
        return self.report.protocol

    @property
    def curve(self) -> list[dict[str, Any]]:
        return self.report.curve
