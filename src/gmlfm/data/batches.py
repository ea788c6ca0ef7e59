"""Batches: training rows in groups, one positive with its negatives, as attribute rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from gmlfm.data.attributes import AttributeTable
from gmlfm.data.dataset import Rows
from gmlfm.data.encoding import Encoded, Encoder
from gmlfm.data.negatives import NegativeSampler
from gmlfm.data.prepared import PreparedData

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Batch:
    """B groups of G items: asking (users with context) (B, F), answering (items) (B, G, F'), labels (B, G), weights (B,).

    An id equal to `frozen` stands for the unknown item row as it is, which this batch must not train: an item without a
    training positive, drawn as a negative, updates only its attributes. Otherwise the unknown row would learn that the
    unknown is never bought.
    """

    asking_ids: Ints
    asking_x: Floats
    answering_ids: Ints
    answering_x: Floats
    labels: Floats
    weights: Floats | None
    frozen: int
    frozen_source: int


class Batches(Protocol):
    """What training reads: the same batches each time an epoch is asked for."""

    @property
    def n_instances(self) -> int: ...

    def epoch(self, number: int) -> Iterator[Batch]: ...


@dataclass(frozen=True)
class BatchOptions:
    """batch_size counts instances; hide is the share of ids hidden behind the unknown row, which trains that row."""

    batch_size: int = 4096
    n_negatives: int = 4
    hide: float = 0.05
    seed: int = 0
    fresh: bool = True


@dataclass(frozen=True)
class IdRows:
    """What hiding needs to know: the unknown rows of both sides, the table's size, and which items had a positive."""

    unknown_user: int
    unknown_item: int
    n_rows: int
    trained_items: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, encoder: Encoder, items: Ints, n_items: int) -> IdRows:
        trained = np.zeros(n_items, bool)
        trained[items] = True
        user, item = (encoder.part(side)[0].unknown_row for side in ("user", "item"))
        return cls(user, item, encoder.n_rows, trained)


class RankingBatches:
    """For top-n: every positive with n fresh negatives (+1, -1), shuffled anew each epoch."""

    def __init__(
        self,
        users: Ints,
        items: Ints,
        rows: Rows,
        encoded: Encoded,
        ids: IdRows,
        sampler: NegativeSampler,
        options: BatchOptions,
        weights: Floats | None = None,
    ) -> None:
        self._users, self._items, self._rows, self._encoded, self._ids = users, items, rows, encoded, ids
        self._sampler, self._options, self._weights = sampler, options, weights

    @property
    def n_instances(self) -> int:
        return len(self._users) * (1 + self._options.n_negatives)

    def epoch(self, number: int) -> Iterator[Batch]:
        options = self._options
        rng = np.random.default_rng([options.seed, 10, number])
        drawing = np.random.default_rng([options.seed, 11, number if options.fresh else 0])
        negatives = self._sampler.draw(self._users, options.n_negatives, drawing)
        order = rng.permutation(len(self._users))
        size = max(1, options.batch_size // (1 + options.n_negatives))
        labels = np.full((size, 1 + options.n_negatives), -1.0, np.float32)
        labels[:, 0] = 1.0
        for start in range(0, len(order), size):
            chosen = order[start : start + size]
            items = np.concatenate([self._items[chosen, None], negatives[chosen]], axis=1)
            asking = asking_of(self._encoded, self._users[chosen], self._rows[chosen])
            weights = None if self._weights is None else self._weights[chosen]
            yield make_batch(asking, self._encoded.item, items, labels[: len(chosen)], weights, self._ids, options.hide, rng)


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
        weights: Floats | None = None,
    ) -> None:
        self._users, self._items, self._labels, self._rows = users, items, labels, rows
        self._encoded, self._ids, self._options, self._weights = encoded, ids, options, weights

    @property
    def n_instances(self) -> int:
        return len(self._users)

    def epoch(self, number: int) -> Iterator[Batch]:
        rng = np.random.default_rng([self._options.seed, 10, number])
        order = rng.permutation(len(self._users))
        for start in range(0, len(order), self._options.batch_size):
            chosen = order[start : start + self._options.batch_size]
            asking = asking_of(self._encoded, self._users[chosen], self._rows[chosen])
            weights = None if self._weights is None else self._weights[chosen]
            labels = self._labels[chosen, None]
            yield make_batch(
                asking, self._encoded.item, self._items[chosen, None], labels, weights, self._ids, self._options.hide, rng
            )


class ShardBatches:
    """For top-n from a prepared folder: shard after shard in a seeded order, each held in memory alone."""

    def __init__(
        self, data: PreparedData, options: BatchOptions, parts: tuple[int, ...] = (0,), rank: int = 0, of: int = 1
    ) -> None:
        self._data, self._options, self._parts = data, options, parts
        self._numbers = list(range(rank, data.n_shards, of))
        first = {field.part: field for field in reversed(data.info.fields) if field.kind == "id"}
        trained = np.zeros(data.info.n_items, bool)
        self._n_positives = 0
        for number in self._numbers:
            shard = data.shard(number)
            kept = self._positives(shard.parts, shard.columns["positive"].to_numpy())
            trained[shard.items[kept]] = True
            self._n_positives += len(kept)
        self._ids = IdRows(first["user"].unknown_row, first["item"].unknown_row, data.n_rows, trained)
        self._candidates = np.arange(data.info.n_items, dtype=np.int32)

    @property
    def n_instances(self) -> int:
        return self._n_positives * (1 + self._options.n_negatives)

    def _positives(self, parts: npt.NDArray[np.int8], positive: npt.NDArray[np.bool_]) -> Rows:
        return np.flatnonzero(np.isin(parts, self._parts) & positive)

    def epoch(self, number: int) -> Iterator[Batch]:
        rng = np.random.default_rng([self._options.seed, 12, number])
        for at in rng.permutation(len(self._numbers)):
            shard = self._data.shard(self._numbers[at])
            kept = self._positives(shard.parts, shard.columns["positive"].to_numpy())
            # Users are numbered through all shards; a sampler for this shard alone counts from its first user.
            first, last = int(shard.users.min()), int(shard.users.max())
            local = (shard.users[kept] - first).astype(np.int32)
            sampler = NegativeSampler(local, shard.items[kept], last - first + 1, self._candidates)
            encoded = Encoded(self._data.users, shard.context, self._data.items)
            weights = shard.columns["weight"].to_numpy()[kept].astype(np.float32) if "weight" in shard.columns.columns else None
            batches = RankingBatches(
                shard.users[kept], shard.items[kept], kept, encoded, self._ids, _Shifted(sampler, first), self._options, weights
            )
            yield from batches.epoch(number * self._data.n_shards + int(at))


class _Shifted(NegativeSampler):
    """A shard's sampler asked with the users' numbers in the whole data."""

    def __init__(self, sampler: NegativeSampler, first: int) -> None:
        self._inner, self._shift = sampler, first

    def draw(self, users: Ints, n: int, rng: np.random.Generator) -> Ints:
        return self._inner.draw((users - self._shift).astype(np.int32), n, rng)


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
    answering_ids = items_table.ids[items]
    untrained = ~known.trained_items[items] & (labels < 0)
    answering_ids[:, :, 0][untrained] = known.n_rows
    if hide > 0:
        asking_ids[rng.random(len(asking_ids)) < hide, 0] = known.unknown_user
        hidden = (rng.random(items.shape) < hide) & ~untrained
        answering_ids[:, :, 0][hidden] = known.unknown_item
    return Batch(
        asking_ids, asking.values, answering_ids, items_table.values[items], labels, weights, known.n_rows, known.unknown_item
    )
