"""The batches that a training reads from a Dataset in memory."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from gmlfm.data.dataset import Dataset, Rows
from gmlfm.data.encoding import Encoded, Encoder
from gmlfm.data.histories import Histories
from gmlfm.data.split_rules import LEAVE_ONE_OUT
from gmlfm.data.times import in_order
from gmlfm.errors import OptionError
from gmlfm.fitting.labels import labelled
from gmlfm.fitting.run import history_spec, learned_interactions, sequence_spec
from gmlfm.training.sampling.availability import negatives_at_times, row_availability, training_negatives
from gmlfm.training.sampling.batches import ALL_NEGATIVES, Batches, LabelledBatches, RankingBatches
from gmlfm.training.sampling.groups import IdRows
from gmlfm.training.sampling.history_batches import HistoryBatches
from gmlfm.training.sampling.instances import Instances
from gmlfm.training.sampling.negatives import TrainingNegatives
from gmlfm.training.sampling.new_items import NewItems, last_rows
from gmlfm.training.sampling.sequence_batches import SequenceBatches
from gmlfm.training.settings import NEGATIVES_OF_A_ROW, Settings


@dataclass(frozen=True)
class TrainingRows:
    """What batches are made of. split: its name; label_scale: centre and spread, in which batches give labels."""

    data: Dataset
    settings: Settings
    split: str
    instances: Instances | None = None
    label_scale: tuple[float, float] = (0.0, 1.0)

    def batches(self, rows: Rows, encoder: Encoder, encoded: Encoded, targets: Rows | None = None) -> Batches:
        """rows: all that is learned from: what counts as known of users and items, and is no negative. targets: those of them
        that the steps are taken for, all unless they are given; an update takes steps for few rows, and knows of all."""
        data, options, n_items = self.data, self.settings.batches, len(encoded.item)
        if encoder.roles or self.settings.info.cls.reads_sequences:
            return self._history_batches(rows, encoder, encoded, targets)
        published = self.settings.preset == "paper"
        if self.settings.task == "topn":
            rows, negatives = training_negatives(data, rows, self.split, options)
            counts = np.bincount(data.item_numbers[rows], minlength=n_items)
            new_items = self._new_items(rows, negatives)
            id_rows = IdRows.from_counts(encoder.fields, counts, encoded.item, new_items, as_published=published)
            if targets is not None:
                places = np.flatnonzero(np.isin(rows, targets))
                rows, negatives = rows[places], negatives.of(places)
            users, items, times = data.user_numbers[rows], data.item_numbers[rows], data.places_in_time[rows]
            return RankingBatches(users, items, rows, encoded, id_rows, negatives, options, self._weights(rows), times)
        users, items, labels, interactions = labelled(data, self.instances, rows)
        counts = np.bincount(items[labels > 0] if self.instances else items, minlength=n_items)
        id_rows = IdRows.from_counts(encoder.fields, counts, encoded.item, as_published=published)
        if targets is not None:
            users, items, labels, interactions = labelled(data, self.instances, targets)
        times = data.places_in_time[interactions]
        return LabelledBatches(users, items, self._scaled(labels), interactions, encoded, id_rows, options, times)

    def _new_items(self, rows: Rows, negatives: TrainingNegatives | None) -> NewItems:
        """How often what is chosen is new, by training rows alone."""
        data = self.data
        items = data.item_numbers[rows]
        moments = in_order(data.interactions["time"])[rows] if "time" in data.interactions.columns else rows
        if self.split == LEAVE_ONE_OUT:
            n_last = np.bincount(items[last_rows(data.user_numbers[rows], moments)], minlength=len(data.items))
            return NewItems.of_last_rows(n_last, np.bincount(items, minlength=len(data.items)))
        new_items = NewItems.estimate(items, moments, len(data.items))
        is_timed = negatives is not None and negatives.times is not None
        return new_items.among(items, moments, negatives) if negatives is not None and is_timed else new_items

    def _history_batches(self, rows: Rows, encoder: Encoder, encoded: Encoded, targets: Rows | None) -> HistoryBatches:
        data, settings, task = self.data, self.settings, self.settings.task
        options, learned = settings.batches, None
        of_batches, spec, pieces = HistoryBatches, history_spec(encoder, settings), settings.history
        if settings.info.cls.reads_sequences:
            of_batches, spec = SequenceBatches, sequence_spec(settings)
            pieces = replace(pieces, history_dropout=0.0)
        assert spec is not None
        if task == "implicit":
            raise OptionError("the task 'implicit' draws its instances without regard to time, so it has no history; set none.")
        negatives, labels, weights, new_items = None, None, None, None
        if task == "topn":
            visible, availability = rows, row_availability(data, self.split)
            if availability is not None or not settings.shares_negatives:
                if options.n_negatives == ALL_NEGATIVES:
                    # What could be had depends on the row since an update brought sales; the run was begun without.
                    options = replace(options, n_negatives=min(NEGATIVES_OF_A_ROW, len(data.seen_items)))
                rows, negatives = negatives_at_times(data, rows, availability, options)
            weights, new_items = self._weights(rows), self._new_items(rows, negatives)
        else:
            visible = learned_interactions(rows, None)
            _, _, values, rows = labelled(data, None, rows)
            labels = self._scaled(values)
        counts = np.bincount(data.item_numbers[rows], minlength=len(encoded.item))
        ids = IdRows.from_counts(encoder.fields, counts, encoded.item, new_items)
        if targets is not None:
            learned, places = rows, np.flatnonzero(np.isin(rows, targets))
            rows, negatives = rows[places], None if negatives is None else negatives.of(places)
            labels, weights = (None if array is None else array[places] for array in (labels, weights))
        return of_batches(
            rows,
            Histories.of(data, visible),
            encoded,
            ids,
            spec,
            options,
            dropout=pieces.history_dropout,
            piece=pieces.piece,
            labels=labels,
            weights=weights,
            negatives=negatives,
            candidates=data.seen_items,
            had=Histories.had(data, visible),
            learned=learned,
        )

    def _weights(self, rows: Rows) -> npt.NDArray[np.float32] | None:
        if "weight" not in self.data.interactions.columns:
            return None
        return self.data.interactions["weight"].to_numpy()[rows].astype(np.float32)

    def _scaled(self, labels: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        centre, spread = self.label_scale
        return (labels - centre) / spread
