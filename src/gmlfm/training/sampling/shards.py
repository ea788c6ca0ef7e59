"""Batches from a prepared folder: shard after shard, each held in memory alone."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from gmlfm.data.attributes import FieldCode
from gmlfm.data.availability import Times
from gmlfm.data.dataset import Rows
from gmlfm.data.encoding import Encoded
from gmlfm.data.occurrences import ItemBounds
from gmlfm.data.prepared import PreparedData, Shard
from gmlfm.data.split_rules import LEAVE_ONE_OUT
from gmlfm.data.splits import TRAIN
from gmlfm.data.times import in_order
from gmlfm.training.sampling.availability import AvailabilitySampler, AvailableItems
from gmlfm.training.sampling.batches import BatchOptions, LabelledBatches, RankingBatches, RowBatches
from gmlfm.training.sampling.cold_start import ColdStartSampler
from gmlfm.training.sampling.groups import Batch, Floats, IdRows, Ints
from gmlfm.training.sampling.negatives import NegativeSampler, TrainingNegatives
from gmlfm.training.sampling.new_items import MOST_ROWS, NewItems, last_rows, latest_cut, new_share

_LOG = logging.getLogger("gmlfm")
_MOST_TIMES = 1_000_000  # of training rows, by which time is cut into blocks


class ShardBatches:
    """For top-n or rating, shards in a seeded order. rank, n_ranks: of several processes, each reads shards of its own.

    Negatives are those of data in memory (training_negatives): with listing times and the split global-time items that can be
    had at the row's time, otherwise items that occur in any row of any part.
    """

    def __init__(
        self,
        data: PreparedData,
        options: BatchOptions,
        parts: tuple[int, ...] = (TRAIN,),
        rank: int = 0,
        n_ranks: int = 1,
        task: str = "topn",
        label_scale: tuple[float, float] = (0.0, 1.0),
        fields: Sequence[FieldCode] | None = None,
    ) -> None:
        """fields: those of the table where it has more than the folder: rows for the roles of a history."""
        self._data, self._parts, self._task, self._label_scale = data, parts, task, label_scale
        self._ranks = task == "topn"
        self._numbers = list(range(rank, data.n_shards, n_ranks))
        self.candidates = np.flatnonzero(data.occurrences.is_seen).astype(np.int32)
        self._bounds = self._bounds_of_rows() if self._ranks else None
        if self._bounds is not None:
            self._available = AvailableItems(self._bounds.start, self._bounds.end, self._some_times())
        counts = np.zeros(data.info.n_items, np.int32)
        n_left_out = 0
        self._n_rows: list[int] = []  # of each shard
        for number in self._numbers:
            shard = data.shard(number)
            rows = self._training_rows(shard)
            numbers, n_chosen = np.unique(shard.items[rows], return_counts=True)
            counts[numbers] += n_chosen.astype(np.int32)
            self._n_rows.append(len(rows))
            n_left_out += len(self._target_rows(shard)) - len(rows)
        if n_left_out:
            _LOG.warning("%s training rows are left out: nothing else could be had at their time.", f"{n_left_out:,}")
        self.options = options
        # One size of a step for all shards, however few rows one of them has.
        self.options = replace(options, batch_size=self._rows_per_step(sum(self._n_rows)) * self._group)
        self.ids = IdRows.from_counts(data.info.fields if fields is None else fields, counts, data.items)
        if self._ranks and options.cold_start_rate > 0 and self.n_instances:
            self.ids = replace(self.ids, new_items=self._new_items(counts))

    @property
    def _group(self) -> int:
        """Instances that are counted for a row."""
        return 1 + self.options.n_negatives if self._ranks else 1

    def _rows_per_step(self, n_rows: int) -> int:
        return self.options.groups_per_step(n_rows * self._group, self._group)

    @property
    def n_instances(self) -> int:
        return sum(self._n_rows) * self._group

    @property
    def groups_per_step(self) -> int:
        assert self.options.batch_size is not None
        return self.options.batch_size // self._group

    @property
    def steps_per_epoch(self) -> int:
        return -(-sum(self._n_rows) // self.groups_per_step)

    def _bounds_of_rows(self) -> ItemBounds | None:
        """What could be had at the time of each row; None where that does not matter."""
        return self._data.bounds if self._data.info.split == "global-time" else None

    def _new_items(self, counts: npt.NDArray[np.int32]) -> NewItems:
        """As TrainingRows has it, in passes over the shards, which hold users whole: users' last rows; or the moment of the
        cut, each item's first row, what could be had."""
        if self._data.info.split == LEAVE_ONE_OUT:
            n_last = np.zeros(len(counts), np.int64)
            for users, items, times in self._trained_times():
                n_last += np.bincount(items[last_rows(users, times)], minlength=len(counts))
            return NewItems.of_last_rows(n_last, counts)
        thinned = [times[:: self._stride] for _, _, times in self._trained_times()]
        cut = latest_cut(np.concatenate(thinned))
        first_times = np.full(len(counts), max(times.max(initial=cut) for times in thinned), thinned[0].dtype)
        n_latest = 0
        for _, items, times in self._trained_times():
            np.minimum.at(first_times, items, times)
            n_latest += int((times > cut).sum())
        new_items = NewItems.from_first_rows(first_times, counts, cut, n_latest)
        if self._bounds is None or n_latest == 0:
            return new_items
        is_old = (counts > 0) & (first_times <= cut)
        shares, weights = [], []
        for number in self._numbers:
            shard = self._data.shard(number)
            rows, negatives = self._negatives(shard)
            latest = np.flatnonzero(in_order(shard.columns["time"])[rows] > cut)
            if len(latest):
                shares.append(new_share(latest, negatives, is_old, -(-MOST_ROWS * len(latest) // n_latest)))
                weights.append(len(latest))
        return replace(new_items, of_candidates=float(np.average(shares, weights=weights)))

    def _trained_times(self) -> Iterator[tuple[Ints, Ints, npt.NDArray[Any]]]:
        """Users, items and times of the training rows, shard by shard; without times the order of the shards."""
        start = 0
        for number in self._numbers:
            shard = self._data.shard(number)
            rows = self._training_rows(shard)
            has_times = "time" in shard.columns.columns
            yield shard.users[rows], shard.items[rows], in_order(shard.columns["time"])[rows] if has_times else start + rows
            start += len(shard.items)

    @property
    def _stride(self) -> int:
        return max(1, self._data.info.n_interactions // _MOST_TIMES)

    def epoch(self, number: int) -> Iterator[Batch]:
        rng = np.random.default_rng([self.options.seed, 12, number])
        for place in rng.permutation(len(self._numbers)):
            shard = self._data.shard(self._numbers[place])
            yield from self._batches_of(shard).epoch(number * self._data.n_shards + int(place))

    def cold_start_sampler(self, number: int) -> ColdStartSampler | None:
        """With the users of one shard, another one each epoch."""
        for place in np.random.default_rng([self.options.seed, 16, number]).permutation(len(self._numbers)):
            shard = self._data.shard(self._numbers[place])
            if len(self._training_rows(shard)):
                return self._batches_of(shard).cold_start_sampler(number)
        return None

    def _some_times(self) -> Times:
        """Times of training rows, thinned evenly."""
        assert self._bounds is not None
        times = []
        for number in self._numbers:
            rows = self._data.interactions(number, ["part", "positive", "time"])
            is_trained = np.isin(rows["part"].to_numpy(), self._parts) & rows["positive"].to_numpy()
            times.append(self._bounds.keys(rows["time"])[is_trained][:: self._stride])
        return np.concatenate(times)

    def _target_rows(self, shard: Shard) -> Rows:
        return target_rows(shard, self._parts, self._task)

    def _training_rows(self, shard: Shard) -> Rows:
        """The rows that have a negative; the first sales of a market may have none."""
        rows = self._target_rows(shard)
        return rows if self._bounds is None else rows[self._has_negatives(shard, rows, self._available_sampler(shard))]

    def _has_negatives(self, shard: Shard, rows: Rows, sampler: AvailabilitySampler) -> npt.NDArray[np.bool_]:
        return sampler.has_items(_local_users(shard)[rows], self._moments(shard)[rows])

    def _available_sampler(self, shard: Shard) -> AvailabilitySampler:
        rows = self._target_rows(shard)
        return AvailabilitySampler(_local_users(shard)[rows], shard.items[rows], self._available)

    def _moments(self, shard: Shard) -> Times:
        assert self._bounds is not None
        return self._bounds.keys(shard.columns["time"])

    def _negatives(self, shard: Shard) -> tuple[Rows, TrainingNegatives]:
        """Training rows with their negatives, which avoid the positives of their users that are visible in training."""
        rows, local = self._target_rows(shard), _local_users(shard)
        chosen = (self.options.n_negatives, self.options.seed, self.options.fresh)
        if self._bounds is None:
            sampler = NegativeSampler(local[rows], shard.items[rows], int(local.max(initial=0)) + 1, self.candidates)
            return rows, TrainingNegatives(sampler, local[rows], *chosen)
        available = self._available_sampler(shard)
        rows = rows[self._has_negatives(shard, rows, available)]
        return rows, TrainingNegatives(available, local[rows], *chosen, self._moments(shard)[rows])

    def _batches_of(self, shard: Shard) -> RowBatches:
        rows, negatives = self._negatives(shard) if self._ranks else (self._target_rows(shard), None)
        users, items = shard.users[rows], shard.items[rows]
        encoded = Encoded(self._data.users, shard.context, self._data.items)
        times = in_order(shard.columns["time"])[rows] if "time" in shard.columns.columns else None
        if negatives is None:
            labels = self._labels(shard, rows)
            return LabelledBatches(users, items, labels, rows, encoded, self.ids, self.options, times)
        weights = self._weights(shard, rows)
        return RankingBatches(users, items, rows, encoded, self.ids, negatives, self.options, weights, times)

    def _labels(self, shard: Shard, rows: Rows) -> Floats:
        centre, spread = self._label_scale
        labels: Floats = (shard.columns["label"].to_numpy()[rows].astype(np.float32) - centre) / spread
        return labels

    def _weights(self, shard: Shard, rows: Rows) -> Floats | None:
        has_weights = "weight" in shard.columns.columns
        return shard.columns["weight"].to_numpy()[rows].astype(np.float32) if has_weights else None


def target_rows(shard: Shard, parts: Sequence[int], task: str) -> Rows:
    """The places of the rows of some parts that a task learns from or predicts."""
    is_target = shard.columns["positive"] if task == "topn" else shard.columns["label"].is_not_null()
    return np.flatnonzero(np.isin(shard.parts, parts) & is_target.to_numpy())


def _local_users(shard: Shard) -> Ints:
    """Users are numbered through all shards; a sampler for a shard alone counts from its first user."""
    local: Ints = shard.users - shard.users.min(initial=np.iinfo(np.int32).max)
    return local
