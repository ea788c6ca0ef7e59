"""Batches from a prepared folder: shard after shard, each held in memory alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from gmlfm.data.dataset import Rows
from gmlfm.data.encoding import Encoded
from gmlfm.data.prepared import PreparedData, Shard
from gmlfm.data.times import in_order
from gmlfm.training.sampling.batches import BatchOptions, LabelledBatches, RankingBatches, RowBatches
from gmlfm.training.sampling.cold_start import ColdStartSampler
from gmlfm.training.sampling.groups import Batch, IdRows
from gmlfm.training.sampling.negatives import NegativeSampler, TrainingNegatives


class ShardBatches:
    """For top-n or rating, shards in a seeded order. rank, n_ranks: of several processes, each reads shards of its own."""

    def __init__(
        self,
        data: PreparedData,
        options: BatchOptions,
        parts: tuple[int, ...] = (0,),
        rank: int = 0,
        n_ranks: int = 1,
        task: str = "topn",
        label_scale: tuple[float, float] = (0.0, 1.0),
    ) -> None:
        self._data, self._parts, self._ranks, self._label_scale = data, parts, task == "topn", label_scale
        self._numbers = list(range(rank, data.n_shards, n_ranks))
        counts = np.zeros(data.info.n_items, np.int64)
        n_rows = 0
        for number in self._numbers:
            shard = data.shard(number)
            rows = self._training_rows(shard)
            counts += np.bincount(shard.items[rows], minlength=data.info.n_items)
            n_rows += len(rows)
        group = 1 + options.n_negatives if self._ranks else 1
        self.n_instances = n_rows * group
        self.groups_per_step = options.groups_per_step(self.n_instances, group)
        # One size for all shards, however few rows one of them has.
        self._options = replace(options, batch_size=self.groups_per_step * group)
        self._ids = IdRows.from_counts(data.info.fields, counts, data.items)
        self._candidates = np.arange(data.info.n_items, dtype=np.int32)

    def _training_rows(self, shard: Shard) -> Rows:
        is_target = shard.columns["positive"] if self._ranks else shard.columns["label"].is_not_null()
        return np.flatnonzero(np.isin(shard.parts, self._parts) & is_target.to_numpy())

    def epoch(self, number: int) -> Iterator[Batch]:
        rng = np.random.default_rng([self._options.seed, 12, number])
        for place in rng.permutation(len(self._numbers)):
            shard = self._data.shard(self._numbers[place])
            yield from self._batches_of(shard).epoch(number * self._data.n_shards + int(place))

    def cold_start_sampler(self, number: int) -> ColdStartSampler | None:
        """With the users of one shard, another one each epoch."""
        for place in np.random.default_rng([self._options.seed, 16, number]).permutation(len(self._numbers)):
            shard = self._data.shard(self._numbers[place])
            if len(self._training_rows(shard)):
                return self._batches_of(shard).cold_start_sampler(number)
        return None

    def _batches_of(self, shard: Shard) -> RowBatches:
        rows, options = self._training_rows(shard), self._options
        users, items = shard.users[rows], shard.items[rows]
        encoded = Encoded(self._data.users, shard.context, self._data.items)
        times = in_order(shard.columns["time"])[rows] if "time" in shard.columns.columns else None
        if not self._ranks:
            centre, spread = self._label_scale
            labels = ((shard.columns["label"].to_numpy()[rows] - centre) / spread).astype(np.float32)
            return LabelledBatches(users, items, labels, rows, encoded, self._ids, options, times)
        has_weights = "weight" in shard.columns.columns
        weights = shard.columns["weight"].to_numpy()[rows].astype(np.float32) if has_weights else None
        # Users are numbered through all shards; a sampler for this shard alone counts from its first user.
        local = (users - shard.users.min()).astype(np.int32)
        sampler = NegativeSampler(local, items, int(np.ptp(shard.users)) + 1, self._candidates)
        negatives = TrainingNegatives(sampler, local, options.n_negatives, options.seed, options.fresh)
        return RankingBatches(users, items, rows, encoded, self._ids, negatives, options, weights, times)
