"""The engine on a CPU: compiled kernels that take the same steps as the eager engine, to rounding."""

from __future__ import annotations

import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.linalg.cython_blas  # noqa: F401 - numba calls this BLAS, which must be loaded before its threads can be limited
import torch
from threadpoolctl import ThreadpoolController

from gmlfm.errors import DataError
from gmlfm.kernels.codes import ACTIVATION_CODES, LOSS_CODES, OPTIMISER_CODES
from gmlfm.kernels.cpu.arrays import Dense, Floats, Groups, Rows, Rule
from gmlfm.kernels.cpu.barrier import break_off, new_meeting
from gmlfm.kernels.cpu.jit import compiling, warn_if_compiling
from gmlfm.kernels.cpu.pairs_transform import PairsShape, PairsWork
from gmlfm.kernels.cpu.steps import run_steps
from gmlfm.kernels.cpu.sums_arrays import SumsShape, SumsWork
from gmlfm.kernels.spec import GatedSpec, KernelSpec, PairsSpec, SumsSpec
from gmlfm.machine import usable_processors
from gmlfm.training.engines.packed_params import PackedParams
from gmlfm.training.engines.packing import bias_corrections, check_spec, mean_loss
from gmlfm.training.engines.workers import WorkerCount, Workers
from gmlfm.training.rows import RowOptimiser
from gmlfm.training.sampling.groups import Batch

if TYPE_CHECKING:
    from gmlfm.training.options import TrainingOptions

_NO_STATE = np.zeros((1, 1), np.float32)
_BLAS = ThreadpoolController()
# The BLAS has one number of threads for all who call it.
_KERNEL_LOCK = threading.Lock()


class CpuEngine(ABC):
    """Runs a batch's steps in one call; the table and the optimisers' state are changed in place."""

    takes_device_batches = False

    def __init__(self, spec: KernelSpec, rows: RowOptimiser, dense: torch.optim.Optimizer, options: TrainingOptions) -> None:
        self.n_threads = options.threads or min(torch.get_num_threads(), usable_processors())
        most_workers = min(self.n_threads, usable_processors())
        self._count, self._workers = WorkerCount(most_workers), Workers(most_workers)
        self._ids_only = spec.ids_only
        self._packed = PackedParams(spec.parameters, dense)
        packed = (self._packed.values, self._packed.first_moment, self._packed.second_moment, self._packed.updates)
        self.dense = Dense(*(tensor.numpy().reshape(1, -1) for tensor in packed))
        state = {name: tensor.numpy() for name, tensor in rows.state().items()}
        first_moment = state.get("first", state.get("squares", _NO_STATE))
        self.rows = Rows(
            rows.table.numpy(),
            first_moment,
            state.get("second", first_moment),
            state.get("count", _NO_STATE),
            np.full(len(rows.table), -1, np.int32),
        )
        self.rule = Rule(
            OPTIMISER_CODES[options.optimiser],
            LOSS_CODES[options.loss],
            np.float32(rows.lr),
            np.float32(rows.weight_decay),
            *bias_corrections(),
        )
        self._work: tuple[tuple[int, ...], Any] | None = None

    @property
    @abstractmethod
    def shapes(self) -> tuple[PairsShape | None, SumsShape | None]:
        """As run_steps takes them: the one that is not None says what is computed."""

    @abstractmethod
    def make_work(self, n_groups: int, most_rows: int, groups: Groups) -> Any:
        """Buffers for steps of n_groups groups with at most `most_rows` distinct rows."""

    def run(self, batch: Batch, groups_per_step: int, loss: str | None = None) -> Iterator[tuple[float, int]]:
        """After all steps their mean loss and how many instances they had.

        Where a step's loss is no number, that loss, and the table as it was before the step."""
        groups = self.groups(batch)
        for ids in (groups.user_ids, groups.item_ids):
            # Compiled code writes wherever it is told to; this look costs a thousandth of the steps.
            if ids.size and not (0 <= ids.min() and ids.max() < len(self.rows.table)):
                raise DataError(f"a batch names row {ids.max():,}; the table has {len(self.rows.table):,}.")
        losses = np.zeros(-(-len(batch) // groups_per_step), np.float32)
        rule = self.rule if loss is None else self.rule._replace(loss=LOSS_CODES[loss])
        work = self.work(min(groups_per_step, len(batch)), groups)
        warn_if_compiling(run_steps)
        with _KERNEL_LOCK, one_blas_thread(), compiling(run_steps):
            self._run(rule, groups, groups_per_step, work, losses)
        self._packed.sync_optimiser()
        yield mean_loss(losses, len(batch), groups_per_step), batch.labels.size

    def _run(self, rule: Rule, groups: Groups, groups_per_step: int, work: Any, losses: Floats) -> None:
        """Block after block of steps, each by as many workers as are the fastest at the moment."""
        first, count = 0, self._count
        while first < len(losses):
            last, n_workers = min(first + count.steps_per_block(groups_per_step), len(losses)), count.next
            meeting = new_meeting()
            shared = (rule, groups, groups_per_step, first, last, self.rows, self.dense, work, self.n_threads, losses, meeting)

            def steps(worker: int, n_workers: int = n_workers, shared: tuple[Any, ...] = shared) -> None:
                run_steps(*self.shapes, *shared, worker, n_workers)  # type: ignore[call-arg]

            started = time.perf_counter()
            self._workers.run(steps, n_workers, lambda meeting=meeting: break_off(meeting))  # type: ignore[misc]
            n_groups = min(last * groups_per_step, len(groups.labels)) - first * groups_per_step
            count.record(n_workers, n_groups, time.perf_counter() - started)
            if not np.isfinite(losses[first:last]).all():
                return
            first = last

    def groups(self, batch: Batch) -> Groups:
        attributes = slice(0, 1) if self._ids_only else slice(None)
        user_x, item_x = batch.user_x[..., attributes], batch.item_x[..., attributes]
        if self._ids_only:
            user_x, item_x = np.ones_like(user_x), np.ones_like(item_x)
        return Groups(
            np.ascontiguousarray(batch.user_ids[..., attributes]),
            np.ascontiguousarray(user_x),
            np.ascontiguousarray(batch.item_ids[..., attributes]),
            np.ascontiguousarray(item_x),
            np.ascontiguousarray(batch.labels),
            np.empty(0, np.float32) if batch.weights is None else np.ascontiguousarray(batch.weights),
        )

    def work(self, n_groups: int, groups: Groups) -> Any:
        """The buffers of the last call where they fit, else new ones."""
        user_width, item_width = groups.user_ids.shape[1], groups.item_ids[0].size
        most_rows = min(n_groups * (user_width + item_width), len(self.rows.table))
        key = (n_groups, most_rows, user_width, *groups.item_ids.shape[1:])
        if self._work is None or self._work[0] != key:
            self._work = key, self.make_work(n_groups, most_rows, groups)
        return self._work[1]

    def _slots(self, n_groups: int, most_rows: int, groups: Groups) -> tuple[Any, Any, Any]:
        return (
            np.empty(most_rows, np.int32),
            np.empty((n_groups, groups.user_ids.shape[1]), np.int32),
            np.empty((n_groups, *groups.item_ids.shape[1:]), np.int32),
        )

    def _floats(self, *shape: int) -> Floats:
        """From the start of a cache line on: rows of whole cache lines are then never read across two."""
        size = math.prod(shape)
        buffer = np.empty(size + 16, np.float32)
        begin = (-buffer.ctypes.data // 4) % 16
        return buffer[begin : begin + size].reshape(shape)


class PairsEngine(CpuEngine):
    def __init__(
        self, spec: PairsSpec | GatedSpec, rows: RowOptimiser, dense: torch.optim.Optimizer, options: TrainingOptions
    ) -> None:
        super().__init__(spec, rows, dense, options)
        if isinstance(spec, GatedSpec):
            self.shape = PairsShape(spec.k, spec.rank, 1, ACTIVATION_CODES["identity"], False, True, True, True)
        else:
            activation = ACTIVATION_CODES[spec.activation]
            layers = (spec.n_layers, activation, spec.has_biases)
            self.shape = PairsShape(spec.k, spec.k, *layers, spec.unit, spec.cosine, False)

    @property
    def shapes(self) -> tuple[PairsShape | None, SumsShape | None]:
        return self.shape, None

    def make_work(self, n_groups: int, most_rows: int, groups: Groups) -> PairsWork:
        k, n_threads = self.shape.k, self.n_threads
        return PairsWork(
            *self._slots(n_groups, most_rows, groups),
            self._floats(self.shape.n_layers + 1, most_rows, k),
            self._floats(most_rows, self.shape.rank),
            self._floats(most_rows),
            self._floats(n_threads, most_rows, 1),
            self._floats(n_threads, most_rows, k),
            self._floats(n_threads, most_rows, self.shape.rank),
            self._floats(n_threads, self.dense.values.size),
            self._floats(n_threads),
            np.zeros(1, np.int64),
        )


class SumsEngine(CpuEngine):
    def __init__(self, spec: SumsSpec, rows: RowOptimiser, dense: torch.optim.Optimizer, options: TrainingOptions) -> None:
        super().__init__(spec, rows, dense, options)
        self.shape = SumsShape(spec.k, spec.translated, spec.linear, np.float32(spec.user_l2), np.float32(spec.item_l2))

    @property
    def shapes(self) -> tuple[PairsShape | None, SumsShape | None]:
        return None, self.shape

    def make_work(self, n_groups: int, most_rows: int, groups: Groups) -> SumsWork:
        width, n_threads = self.rows.table.shape[1], self.n_threads
        return SumsWork(
            *self._slots(n_groups, most_rows, groups),
            self._floats(most_rows, width),
            self._floats(n_threads, most_rows, width),
            self._floats(n_threads, 1),
            self._floats(n_threads),
            np.zeros(1, np.int64),
        )


def cpu_engine(spec: KernelSpec, rows: RowOptimiser, dense: torch.optim.Optimizer, options: TrainingOptions) -> CpuEngine:
    check_spec(spec, (PairsSpec, GatedSpec, SumsSpec))
    if isinstance(spec, PairsSpec | GatedSpec):
        return PairsEngine(spec, rows, dense, options)
    assert isinstance(spec, SumsSpec)
    return SumsEngine(spec, rows, dense, options)


def one_blas_thread() -> Any:
    """Each thread calls the BLAS by itself; a pool of the BLAS's own under each would fight them for the cores."""
    return _BLAS.limit(limits=1, user_api="blas")
