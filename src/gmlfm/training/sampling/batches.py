"""Batches: training rows in groups, one positive with its negatives, as attribute rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from gmlfm.data.dataset import Rows
from gmlfm.data.encoding import Encoded
from gmlfm.data.prepared import PreparedData, Shard
from gmlfm.data.times import in_order
from gmlfm.training.sampling.cold_start import ByUser, ColdStartSampler
from gmlfm.training.sampling.groups import Batch, Floats, IdRows, Ints, make_batch, user_side_of
from gmlfm.training.sampling.negatives import NegativeSampler, TrainingNegatives

_SMALLEST_BATCH, _STEPS_PER_EPOCH = 64, 40
_INSTANCES_AT_ONCE = 65_536  # many steps' rows are looked up together: for small steps that look-up would cost more than they


class Batches(Protocol):
    """What training reads: the same batches each time an epoch is asked for, each of them some steps long."""

    @property
    def n_instances(self) -> int: ...

    @property
    def groups_per_step(self) -> int: ...

    def epoch(self, number: int) -> Iterator[Batch]: ...

    def cold_start_sampler(self, number: int) -> ColdStartSampler | None:
        """By which epoch `number` imitates newcomers; None where it shall not."""
        ...


@dataclass(frozen=True)
class BatchOptions:
    """batch_size counts instances; hide is how many groups, for each one of training, are shown with ids hidden, which trains
    the rows that newcomers stand at (gmlfm.training.cold_start).

    Without a batch_size it is `largest`, and less for small data, so that an epoch has some forty steps or more.
    """

    batch_size: int | None = None
    n_negatives: int = 4
    cold_start_rate: float = 0.1
    seed: int = 0
    fresh: bool = True

    def groups_per_step(self, n_instances: int, group: int, largest: int = 4096) -> int:
        size = self.batch_size or min(largest, max(_SMALLEST_BATCH, n_instances // _STEPS_PER_EPOCH))
        return max(1, size // group)


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
        times: npt.NDArray[Any] | None = None,
    ) -> None:
        """times: anything that grows with time, to tell a user's latest row; without it, the last one listed is."""
        self._times = times
        self.users, self.items, self.rows, self.encoded, self.ids = users, items, rows, encoded, ids
        self.negatives, self.options, self.weights = negatives, options, weights

    @property
    def n_instances(self) -> int:
        return len(self.users) * (1 + self.options.n_negatives)

    @property
    def groups_per_step(self) -> int:
        return self.options.groups_per_step(self.n_instances, 1 + self.options.n_negatives)

    def epoch(self, number: int) -> Iterator[Batch]:
        options = self.options
        rng = np.random.default_rng([options.seed, 10, number])
        negatives = self.negatives.of_epoch(number)
        order = rng.permutation(len(self.users))
        at_once = _groups_at_once(self.groups_per_step, 1 + options.n_negatives)
        labels = np.full((at_once, 1 + options.n_negatives), -1.0, np.float32)
        labels[:, 0] = 1.0
        for start in range(0, len(order), at_once):
            chosen = order[start : start + at_once]
            items = np.concatenate([self.items[chosen, None], negatives[chosen]], axis=1)
            user_side = user_side_of(self.encoded, self.users[chosen], self.rows[chosen])
            weights = None if self.weights is None else self.weights[chosen]
            yield make_batch(user_side, self.encoded.item, items, labels[: len(chosen)], weights, self.ids)

    def cold_start_sampler(self, number: int) -> ColdStartSampler | None:
        if self.options.cold_start_rate == 0:
            return None
        rng, n = np.random.default_rng([self.options.seed, 15, number]), self.options.n_negatives
        unchosen = float((~self.ids.trained_items[self.negatives.sampler.candidates]).mean())
        odds = self.ids.first_choices / (n * unchosen) if unchosen else None
        given = (self.users, self.rows, self.encoded, self.ids, self._by_user, self._show)
        return ColdStartSampler(*given, 1 + n, self.options.cold_start_rate, rng, odds)

    @cached_property
    def _by_user(self) -> ByUser:
        return ByUser.of(self.users, self._times)

    def _show(self, places: Rows, rng: np.random.Generator) -> Batch:
        drawn = self.negatives.sampler.draw(self.negatives.users[places], self.options.n_negatives, rng)
        items = np.concatenate([self.items[places, None], drawn], axis=1)
        labels = np.full(items.shape, -1.0, np.float32)
        labels[:, 0] = 1.0
        user_side = user_side_of(self.encoded, self.users[places], self.rows[places])
        return make_batch(user_side, self.encoded.item, items, labels, None, self.ids)


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
        times: npt.NDArray[Any] | None = None,
    ) -> None:
        self._times = times
        self._users, self._items, self._labels, self._rows = users, items, labels, rows
        self._encoded, self._ids, self._options = encoded, ids, options

    @property
    def n_instances(self) -> int:
        return len(self._users)

    @property
    def groups_per_step(self) -> int:
        return self._options.groups_per_step(self.n_instances, 1)

    def epoch(self, number: int) -> Iterator[Batch]:
        rng = np.random.default_rng([self._options.seed, 10, number])
        order = rng.permutation(len(self._users))
        at_once = _groups_at_once(self.groups_per_step, 1)
        for start in range(0, len(order), at_once):
            yield self._show(order[start : start + at_once], rng)

    def cold_start_sampler(self, number: int) -> ColdStartSampler | None:
        if self._options.cold_start_rate == 0:
            return None
        rng = np.random.default_rng([self._options.seed, 15, number])
        return ColdStartSampler(
            self._users, self._rows, self._encoded, self._ids, self._by_user, self._show, 1, self._options.cold_start_rate, rng
        )

    @cached_property
    def _by_user(self) -> ByUser:
        return ByUser.of(self._users, self._times)

    def _show(self, places: Rows, rng: np.random.Generator) -> Batch:
        user_side = user_side_of(self._encoded, self._users[places], self._rows[places])
        labels = self._labels[places, None]
        return make_batch(user_side, self._encoded.item, self._items[places, None], labels, None, self._ids)


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
        counts = np.zeros(data.info.n_items, np.int64)
        n_rows = 0
        for number in self._numbers:
            shard = data.shard(number)
            kept = self._kept(shard)
            counts += np.bincount(shard.items[kept], minlength=data.info.n_items)
            n_rows += len(kept)
        self.n_instances = n_rows * (1 + options.n_negatives if self._ranks else 1)
        group = 1 + options.n_negatives if self._ranks else 1
        self.groups_per_step = options.groups_per_step(self.n_instances, group)
        # One size for all shards, however few rows one of them has.
        self._options = replace(options, batch_size=self.groups_per_step * group)
        self._ids = IdRows.between(data.info.fields, counts, data.items)
        self._candidates = np.arange(data.info.n_items, dtype=np.int32)

    def _kept(self, shard: Shard) -> Rows:
        wanted = shard.columns["positive"] if self._ranks else shard.columns["label"].is_not_null()
        return np.flatnonzero(np.isin(shard.parts, self._parts) & wanted.to_numpy())

    def epoch(self, number: int) -> Iterator[Batch]:
        rng = np.random.default_rng([self._options.seed, 12, number])
        for at in rng.permutation(len(self._numbers)):
            shard = self._data.shard(self._numbers[at])
            yield from self._of(shard).epoch(number * self._data.n_shards + int(at))

    def cold_start_sampler(self, number: int) -> ColdStartSampler | None:
        """With the users of one shard, another one each epoch."""
        for at in np.random.default_rng([self._options.seed, 16, number]).permutation(len(self._numbers)):
            shard = self._data.shard(self._numbers[at])
            if len(self._kept(shard)):
                return self._of(shard).cold_start_sampler(number)
        return None

    def _of(self, shard: Shard) -> Batches:
        kept, options = self._kept(shard), self._options
        users, items = shard.users[kept], shard.items[kept]
        encoded = Encoded(self._data.users, shard.context, self._data.items)
        timed = "time" in shard.columns.columns
        times = in_order(shard.columns["time"])[kept] if timed else None
        if not self._ranks:
            centre, spread = self._label_scale
            labels = ((shard.columns["label"].to_numpy()[kept] - centre) / spread).astype(np.float32)
            return LabelledBatches(users, items, labels, kept, encoded, self._ids, options, times)
        weighted = "weight" in shard.columns.columns
        weights = shard.columns["weight"].to_numpy()[kept].astype(np.float32) if weighted else None
        # Users are numbered through all shards; a sampler for this shard alone counts from its first user.
        local = (users - shard.users.min()).astype(np.int32)
        sampler = NegativeSampler(local, items, int(np.ptp(shard.users)) + 1, self._candidates)
        negatives = TrainingNegatives(sampler, local, options.n_negatives, options.seed, options.fresh)
        return RankingBatches(users, items, kept, encoded, self._ids, negatives, options, weights, times)


def _groups_at_once(groups_per_step: int, group: int) -> int:
    return max(1, _INSTANCES_AT_ONCE // (groups_per_step * group)) * groups_per_step
