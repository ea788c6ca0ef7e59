"""Batches: training rows in groups, one positive with its negatives, as attribute arrays."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Protocol

import numpy as np
import numpy.typing as npt

from gmlfm.data.dataset import Rows
from gmlfm.data.encoding import Encoded
from gmlfm.models.settings import Choice, Setting
from gmlfm.training.sampling.cold_start import ColdStartSampler, RowsByUser
from gmlfm.training.sampling.groups import Batch, Floats, IdRows, Ints, make_batch
from gmlfm.training.sampling.negatives import TrainingNegatives

_SMALLEST_BATCH, _STEPS_PER_EPOCH, _LARGEST_BATCH = 64, 40, 4096
_INSTANCES_AT_ONCE = 65_536  # many steps' rows are looked up together: for small steps that look-up would cost more than they

_MOST = 2**24  # instances of a step: more than any data want, less than any memory holds
_BATCH_SIZE = Setting(
    f"instances of a step; auto is {_LARGEST_BATCH}, or less, so that an epoch has some {_STEPS_PER_EPOCH} steps",
    least=1,
    most=_MOST,
    search=Choice(("auto", 256, 1024, 16384)),
)
_LARGEST = Setting("the most that batch_size auto takes; auto is 4096, on a GPU 32768", least=64, most=_MOST)
ALL_NEGATIVES = -1
_NEGATIVES = Setting(
    "sampled negatives beside each positive; with a history, and all with a softmax, of a step",
    least=0,
    most=1_000_000,
    search=Choice((1, 2, 4, 8, 16)),
    words={"all": ALL_NEGATIVES},
)
_COLD_START = Setting(
    "cold-start steps, with ids hidden, for each training step: they train what newcomers are scored by",
    least=0,
    below=1,
    search=Choice((0.0, 0.05, 0.1)),
)


class Batches(Protocol):
    """What training reads: the same batches each time an epoch is asked for, each of them some steps long."""

    @property
    def n_instances(self) -> int: ...

    @property
    def groups_per_step(self) -> int: ...

    @property
    def steps_per_epoch(self) -> int: ...

    def epoch(self, number: int) -> Iterator[Any]: ...

    def cold_start_sampler(self, number: int) -> ColdStartSampler | None:
        """By which epoch `number` imitates newcomers; None where it shall not."""
        ...


@dataclass(frozen=True)
class BatchOptions:
    batch_size: Annotated[int | None, _BATCH_SIZE] = None
    largest_batch: Annotated[int | None, _LARGEST] = None
    n_negatives: Annotated[int, _NEGATIVES] = 4
    cold_start_rate: Annotated[float, _COLD_START] = 0.1
    seed: Annotated[int, Setting("of weights, negatives and order", least=0, most=2**31 - 1)] = 0
    fresh: Annotated[bool, Setting("whether negatives are drawn anew each epoch")] = True

    def groups_per_step(self, n_instances: int, group: int, largest: int = _LARGEST_BATCH) -> int:
        largest = self.largest_batch or largest
        size = self.batch_size or min(largest, max(_SMALLEST_BATCH, n_instances // _STEPS_PER_EPOCH))
        return max(1, size // group)


class RowBatches(ABC):
    """What batches of all training rows share. times: anything that grows with time, to know a user's latest row; without it,
    the last one listed is."""

    def __init__(
        self,
        users: Ints,
        items: Ints,
        rows: Rows,
        encoded: Encoded,
        ids: IdRows,
        options: BatchOptions,
        times: npt.NDArray[Any] | None,
    ) -> None:
        self.users, self.items, self.rows, self.encoded, self.ids, self.options = users, items, rows, encoded, ids, options
        self._times = times

    @property
    @abstractmethod
    def group(self) -> int:
        """Items of a group."""

    @abstractmethod
    def epoch(self, number: int) -> Iterator[Batch]: ...

    @abstractmethod
    def _show(self, places: Rows, rng: np.random.Generator) -> Batch:
        """The training rows at some places."""

    @property
    def n_instances(self) -> int:
        return len(self.users) * self.group

    @property
    def groups_per_step(self) -> int:
        return self.options.groups_per_step(self.n_instances, self.group)

    @property
    def steps_per_epoch(self) -> int:
        return -(-len(self.users) // self.groups_per_step)

    @property
    def _groups_at_once(self) -> int:
        return max(1, _INSTANCES_AT_ONCE // (self.groups_per_step * self.group)) * self.groups_per_step

    def cold_start_sampler(self, number: int) -> ColdStartSampler | None:
        options = self.options
        if options.cold_start_rate == 0:
            return None
        rng, rate = np.random.default_rng([options.seed, 15, number]), options.cold_start_rate
        rows = (self.users, self.items, self.rows, self.encoded, self.ids, self._by_user, self._show)
        return ColdStartSampler(*rows, self.group, rate, rng)

    @cached_property
    def _by_user(self) -> RowsByUser:
        return RowsByUser.sort(self.users, self._times)


class RankingBatches(RowBatches):
    """For top-n: every positive with n negatives (+1, -1), shuffled anew each epoch."""

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
        super().__init__(users, items, rows, encoded, ids, options, times)
        self.negatives, self.weights = negatives, weights

    @property
    def group(self) -> int:
        return 1 + self.options.n_negatives

    def epoch(self, number: int) -> Iterator[Batch]:
        rng = np.random.default_rng([self.options.seed, 10, number])
        negatives = self.negatives.of_epoch(number)
        order = rng.permutation(len(self.users))
        at_once = self._groups_at_once
        for start in range(0, len(order), at_once):
            places = order[start : start + at_once]
            yield self._batch(places, negatives[places], None if self.weights is None else self.weights[places])

    def _show(self, places: Rows, rng: np.random.Generator) -> Batch:
        return self._batch(places, self.negatives.draw(places, rng), None)

    def _batch(self, places: Rows, negatives: Ints, weights: Floats | None) -> Batch:
        items = np.concatenate([self.items[places, None], negatives], axis=1)
        labels = np.full(items.shape, -1.0, np.float32)
        labels[:, 0] = 1.0
        users = self.encoded.user_side(self.users[places], self.rows[places])
        return make_batch(users, self.encoded.item, items, labels, weights, self.ids)


class LabelledBatches(RowBatches):
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
        super().__init__(users, items, rows, encoded, ids, options, times)
        self._labels = labels

    @property
    def group(self) -> int:
        return 1

    def epoch(self, number: int) -> Iterator[Batch]:
        rng = np.random.default_rng([self.options.seed, 10, number])
        order = rng.permutation(len(self.users))
        at_once = self._groups_at_once
        for start in range(0, len(order), at_once):
            yield self._show(order[start : start + at_once], rng)

    def _show(self, places: Rows, rng: np.random.Generator) -> Batch:
        users = self.encoded.user_side(self.users[places], self.rows[places])
        return make_batch(users, self.encoded.item, self.items[places, None], self._labels[places, None], None, self.ids)
