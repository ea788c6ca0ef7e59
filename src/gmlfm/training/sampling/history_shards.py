"""Batches with histories from a prepared folder: shard after shard, each with its users' histories in memory alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from gmlfm.data.attributes import AttributeTable, FieldCode
from gmlfm.data.encoding import Encoded
from gmlfm.data.occurrences import ItemBounds
from gmlfm.data.prepared import PreparedData, Shard
from gmlfm.data.shard_histories import ShardUsers
from gmlfm.data.splits import TRAIN
from gmlfm.models.base import HistorySpec, UserSide
from gmlfm.training.history_options import HistoryOptions
from gmlfm.training.sampling.batches import BatchOptions
from gmlfm.training.sampling.history_batches import HistoryBatch, HistoryBatches, TargetBatches, rows_per_step
from gmlfm.training.sampling.sequence_batches import SequenceBatches
from gmlfm.training.sampling.shards import ShardBatches


class HistoryShards(ShardBatches, TargetBatches):
    """The batches of each shard are HistoryBatches, or SequenceBatches, of its rows: the same targets with the same histories
    as from data in memory, in another order. A history is made of rows of `parts` alone, and of what is history alone.

    pieces: how rows are shown, without dropout where sequences are read; shares_negatives: whether a step's rows may.
    """

    def __init__(
        self,
        data: PreparedData,
        options: BatchOptions,
        spec: HistorySpec,
        pieces: HistoryOptions,
        parts: tuple[int, ...] = (TRAIN,),
        *,
        rank: int = 0,
        n_ranks: int = 1,
        task: str = "topn",
        label_scale: tuple[float, float] = (0.0, 1.0),
        fields: Sequence[FieldCode] | None = None,
        shares_negatives: bool = True,
        reads_sequences: bool = False,
    ) -> None:
        self.spec, self._pieces, self._may_share, self.reads_sequences = spec, pieces, shares_negatives, reads_sequences
        super().__init__(data, options, parts, rank, n_ranks, task=task, label_scale=label_scale, fields=fields)
        items = AttributeTable(np.asarray(data.items.ids), np.asarray(data.items.values))  # plain arrays, quicker to index
        self.encoded = Encoded(data.users, AttributeTable(items.ids[:0], items.values[:0]), items)
        self._latest: HistoryBatches | None = None

    @property
    def shares_negatives(self) -> bool:
        return self._may_share and self._ranks and self._bounds is None

    @property
    def _group(self) -> int:
        return 1

    def _rows_per_step(self, n_rows: int) -> int:
        return rows_per_step(self.options, n_rows)

    @property
    def steps_per_epoch(self) -> int:
        return sum(-(-n_rows // self.groups_per_step) for n_rows in self._n_rows)

    def _bounds_of_rows(self) -> ItemBounds | None:
        """Under every split, as far as it is known; the split by time adds the sales."""
        return self._data.row_bounds

    def epoch(self, number: int) -> Iterator[HistoryBatch]:  # type: ignore[override]
        rng, n_steps = np.random.default_rng([self.options.seed, 12, number]), 0
        for place in rng.permutation(len(self._numbers)):
            if self._n_rows[place]:
                batches = self._history_batches(self._data.shard(self._numbers[place]))
                for batch in batches.epoch(number * self._data.n_shards + int(place), n_steps):
                    n_steps += 1
                    yield batch
                self._latest = batches

    def draw_users(self, n: int, rng: np.random.Generator) -> UserSide:
        """Of the shard that was read last, another one each epoch."""
        if self._latest is None:
            first = next(place for place, n_rows in enumerate(self._n_rows) if n_rows)
            self._latest = self._history_batches(self._data.shard(self._numbers[first]))
        return self._latest.draw_users(n, rng)

    def cold_start_sampler(self, number: int) -> None:
        return TargetBatches.cold_start_sampler(self, number)

    def _history_batches(self, shard: Shard) -> HistoryBatches:
        users, visible = ShardUsers.of(self._data, shard), self._target_rows(shard)
        rows, negatives, labels, weights = visible, None, None, None
        if not self._ranks:
            labels = self._labels(shard, rows)
        else:
            if not self.shares_negatives:
                rows, negatives = self._negatives(shard)
            weights = self._weights(shard, rows)
        of_batches = SequenceBatches if self.reads_sequences else HistoryBatches
        return of_batches(
            rows,
            users.histories(visible),
            users.encoded(self.encoded.item),
            self.ids,
            self.spec,
            self.options,
            dropout=0.0 if self.reads_sequences else self._pieces.history_dropout,
            piece=self._pieces.piece,
            labels=labels,
            weights=weights,
            negatives=negatives,
            candidates=self.candidates,
            had=users.had(visible),
        )
