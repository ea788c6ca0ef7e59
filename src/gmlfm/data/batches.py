"""Batches: training rows in groups, one positive with its negatives, as attribute rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from gmlfm.data.attributes import AttributeTable, FieldCode
from gmlfm.data.dataset import Rows
from gmlfm.data.encoding import Encoded, Encoder
from gmlfm.data.negatives import NegativeSampler, TrainingNegatives
from gmlfm.data.prepared import PreparedData, Shard

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]
_SMALLEST_BATCH, _STEPS_AN_EPOCH = 64, 40
_INSTANCES_AT_ONCE = 65_536  # many steps' rows are looked up together: for small steps that look-up would cost more than they


@dataclass(frozen=True)
class Batch:
    """B groups of G items: asking (users with context) (B, F), answering (items) (B, G, F'), labels (B, G), weights (B,).

    An item without a training positive, drawn as a negative, stands at the decoy row (see IdRows), not at the unknown one,
    which would learn that the unknown is never bought.
    """

    asking_ids: Ints
    asking_x: Floats
    answering_ids: Ints
    answering_x: Floats
    labels: Floats
    weights: Floats | None

    def __len__(self) -> int:
        return len(self.labels)

    def steps(self, size: int) -> Iterator[Batch]:
        """The same groups, `size` at a time."""
        for start in range(0, len(self), size):
            part = slice(start, start + size)
            yield Batch(
                self.asking_ids[part],
                self.asking_x[part],
                self.answering_ids[part],
                self.answering_x[part],
                self.labels[part],
                None if self.weights is None else self.weights[part],
            )


class Batches(Protocol):
    """What training reads: the same batches each time an epoch is asked for, each of them some steps long."""

    @property
    def n_instances(self) -> int: ...

    @property
    def groups_a_step(self) -> int: ...

    def epoch(self, number: int) -> Iterator[Batch]: ...


@dataclass(frozen=True)
class BatchOptions:
    """batch_size counts instances; hide is the share of ids hidden behind the unknown row, which trains that row.

    Without a batch_size it is `largest`, and less for small data, so that an epoch has some forty steps or more.
    """

    batch_size: int | None = None
    n_negatives: int = 4
    hide: float = 0.05
    seed: int = 0
    fresh: bool = True

    def groups_a_step(self, n_instances: int, group: int, largest: int = 4096) -> int:
        size = self.batch_size or min(largest, max(_SMALLEST_BATCH, n_instances // _STEPS_AN_EPOCH))
        return max(1, size // group)


@dataclass(frozen=True)
class IdRows:
    """What hiding needs to know: the unknown rows of both sides, and what had a training positive.

    decoy: the id's missing row, which nothing else uses and scoring never sees. It takes up that items without a positive are
    always negatives; their attributes alone would otherwise have to, and those typical of new items would come last.
    trained_rows: the attribute rows that some item with a positive carries. A value that none of them has would only ever be
    drawn as a negative and learn that it is never chosen: such values are left out of training, as ids are.
    """

    unknown_user: int
    unknown_item: int
    decoy: int
    trained_items: npt.NDArray[np.bool_]
    trained_rows: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, encoder: Encoder, items: Ints, item_table: AttributeTable) -> IdRows:
        return cls.between(encoder.fields, items, item_table)

    @classmethod
    def between(cls, fields: Sequence[FieldCode], items: Ints, item_table: AttributeTable) -> IdRows:
        user, item = (next(one for one in fields if one.part == side and one.kind == "id") for side in ("user", "item"))
        trained = np.zeros(len(item_table), bool)
        trained[items] = True
        rows = np.zeros(fields[-1].end, bool)
        rows[item_table.ids[trained]] = True
        return cls(user.unknown_row, item.unknown_row, item.missing_row, trained, rows)


class RankingBatches:
    """For top-n: every positive with n fresh negatives (+1, -1), shuffled anew each epoch."""

    def __init__(
        self,
        users: Ints,
        items: Ints,
        rows: Rows,
        encoded: Encoded,
        ids: IdRows,
        negatives: TrainingNegatives,
        options: BatchOptions,
        weights: Floats | None = None,
    ) -> None:
        self.users, self.items, self.rows, self.encoded, self.ids = users, items, rows, encoded, ids
        self.negatives, self.options, self.weights = negatives, options, weights

    @property
    def n_instances(self) -> int:
        return len(self.users) * (1 + self.options.n_negatives)

    @property
    def groups_a_step(self) -> int:
        return self.options.groups_a_step(self.n_instances, 1 + self.options.n_negatives)

    def epoch(self, number: int) -> Iterator[Batch]:
        options = self.options
        rng = np.random.default_rng([options.seed, 10, number])
        negatives = self.negatives.of_epoch(number)
        order = rng.permutation(len(self.users))
        at_once = _groups_at_once(self.groups_a_step, 1 + options.n_negatives)
        labels = np.full((at_once, 1 + options.n_negatives), -1.0, np.float32)
        labels[:, 0] = 1.0
        for start in range(0, len(order), at_once):
            chosen = order[start : start + at_once]
            items = np.concatenate([self.items[chosen, None], negatives[chosen]], axis=1)
            asking = asking_of(self.encoded, self.users[chosen], self.rows[chosen])
            weights = None if self.weights is None else self.weights[chosen]
            yield make_batch(asking, self.encoded.item, items, labels[: len(chosen)], weights, self.ids, options.hide, rng)


class LabelledBatches:
    """For rating and implicit: instances with their own labels, one item a group."""

    def __init__(
        self,
        users: Ints,
        items: Ints,
        labels: Floats,
        rows: Rows,
        encoded: Encoded,
        ids: IdRows,
        options: BatchOptions,
    ) -> None:
        self._users, self._items, self._labels, self._rows = users, items, labels, rows
        self._encoded, self._ids, self._options = encoded, ids, options

    @property
    def n_instances(self) -> int:
        return len(self._users)

    @property
    def groups_a_step(self) -> int:
        return self._options.groups_a_step(self.n_instances, 1)

    def epoch(self, number: int) -> Iterator[Batch]:
        rng = np.random.default_rng([self._options.seed, 10, number])
        order = rng.permutation(len(self._users))
        at_once = _groups_at_once(self.groups_a_step, 1)
        for start in range(0, len(order), at_once):
            chosen = order[start : start + at_once]
            asking = asking_of(self._encoded, self._users[chosen], self._rows[chosen])
            labels = self._labels[chosen, None]
            yield make_batch(
                asking, self._encoded.item, self._items[chosen, None], labels, None, self._ids, self._options.hide, rng
            )


class ShardBatches:
    """From a prepared folder, for top-n or rating: shard after shard in a seeded order, each held in memory alone."""

    def __init__(
        self,
        data: PreparedData,
        options: BatchOptions,
        parts: tuple[int, ...] = (0,),
        rank: int = 0,
        of: int = 1,
        task: str = "topn",
        label_scale: tuple[float, float] = (0.0, 1.0),
    ) -> None:
        self._data, self._parts, self._ranks, self._label_scale = data, parts, task == "topn", label_scale
        self._numbers = list(range(rank, data.n_shards, of))
        trained = np.zeros(data.info.n_items, bool)
        n_rows = 0
        for number in self._numbers:
            shard = data.shard(number)
            kept = self._kept(shard)
            trained[shard.items[kept]] = True
            n_rows += len(kept)
        self.n_instances = n_rows * (1 + options.n_negatives if self._ranks else 1)
        group = 1 + options.n_negatives if self._ranks else 1
        self.groups_a_step = options.groups_a_step(self.n_instances, group)
        # One size for all shards, however few rows one of them has.
        self._options = replace(options, batch_size=self.groups_a_step * group)
        chosen = np.flatnonzero(trained).astype(np.int32)
        self._ids = IdRows.between(data.info.fields, chosen, data.items)
        self._candidates = np.arange(data.info.n_items, dtype=np.int32)

    def _kept(self, shard: Shard) -> Rows:
        wanted = shard.columns["positive"] if self._ranks else shard.columns["label"].is_not_null()
        return np.flatnonzero(np.isin(shard.parts, self._parts) & wanted.to_numpy())

    def epoch(self, number: int) -> Iterator[Batch]:
        rng = np.random.default_rng([self._options.seed, 12, number])
        for at in rng.permutation(len(self._numbers)):
            shard = self._data.shard(self._numbers[at])
            yield from self._of(shard).epoch(number * self._data.n_shards + int(at))

    def _of(self, shard: Shard) -> Batches:
        kept, options = self._kept(shard), self._options
        users, items = shard.users[kept], shard.items[kept]
        encoded = Encoded(self._data.users, shard.context, self._data.items)
        if not self._ranks:
            centre, spread = self._label_scale
            labels = ((shard.columns["label"].to_numpy()[kept] - centre) / spread).astype(np.float32)
            return LabelledBatches(users, items, labels, kept, encoded, self._ids, options)
        weighted = "weight" in shard.columns.columns
        weights = shard.columns["weight"].to_numpy()[kept].astype(np.float32) if weighted else None
        # Users are numbered through all shards; a sampler for this shard alone counts from its first user.
        local = (users - shard.users.min()).astype(np.int32)
        sampler = NegativeSampler(local, items, int(np.ptp(shard.users)) + 1, self._candidates)
        negatives = TrainingNegatives(sampler, local, options.n_negatives, options.seed, options.fresh)
        return RankingBatches(users, items, kept, encoded, self._ids, negatives, options, weights)


def _groups_at_once(groups_a_step: int, group: int) -> int:
    return max(1, _INSTANCES_AT_ONCE // (groups_a_step * group)) * groups_a_step


def asking_of(encoded: Encoded, users: npt.NDArray[np.integer[Any]], rows: Rows | None) -> AttributeTable:
    """Users with the context of their interaction rows; without rows the context is left out."""
    ids, x = encoded.user.ids[users], encoded.user.values[users]
    if rows is None or encoded.context.ids.shape[1] == 0:
        return AttributeTable(ids, x)
    return AttributeTable(
        np.concatenate([ids, encoded.context.ids[rows]], axis=1), np.concatenate([x, encoded.context.values[rows]], axis=1)
    )


def make_batch(
    asking: AttributeTable,
    items_table: AttributeTable,
    items: Ints,
    labels: Floats,
    weights: Floats | None,
    known: IdRows,
    hide: float,
    rng: np.random.Generator,
) -> Batch:
    asking_ids = np.array(asking.ids)
    answering_ids, answering_x = items_table.ids[items], items_table.values[items]
    untrained = ~known.trained_items[items] & (labels < 0)
    if untrained.any():
        answering_x[untrained] *= known.trained_rows[answering_ids[untrained]]
        answering_ids[:, :, 0][untrained], answering_x[:, :, 0][untrained] = known.decoy, 1.0
    if hide > 0:
        asking_ids[rng.random(len(asking_ids)) < hide, 0] = known.unknown_user
        hidden = (rng.random(items.shape) < hide) & ~untrained
        answering_ids[:, :, 0][hidden] = known.unknown_item
    return Batch(asking_ids, asking.values, answering_ids, answering_x, labels, weights)
