"""Steps on the CPU by compiled kernels, for the models that have one: the same steps as the reference, to rounding."""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.linalg.cython_blas  # noqa: F401 - numba calls this BLAS, which must be loaded before its threads can be limited
import torch
from threadpoolctl import ThreadpoolController
from torch import nn

from gmlfm.errors import DataError
from gmlfm.kernels.cpu import gml, sums
from gmlfm.kernels.cpu.arrays import Dense, Floats, Groups, Rows, Rule
from gmlfm.kernels.cpu.jit import tell_if_compiling
from gmlfm.models.base import GradientModel, PairwiseModel
from gmlfm.models.fm import FM
from gmlfm.models.gmlfm import GMLFM
from gmlfm.models.mf import MF
from gmlfm.models.transfm import TransFM
from gmlfm.training.engines.packed_params import DenseLine
from gmlfm.training.engines.packing import OBJECTIVES, OPTIMISERS, fading, gml_line, mean_loss
from gmlfm.training.rows import RowOptimiser
from gmlfm.training.sampling.groups import Batch

if TYPE_CHECKING:
    from gmlfm.training.loop import TrainingOptions

_NOTHING = np.zeros((1, 1), np.float32)
_BLAS = ThreadpoolController()
# Kernels share numba's threads, and one of its thread layers cannot be entered twice.
_ONE_AT_A_TIME = threading.Lock()


def cannot(model: GradientModel) -> str:
    """Why a model has no compiled steps; '' where it has."""
    if type(model) in (FM, MF, TransFM):
        return ""
    return gml_line(model).cannot if type(model) is GMLFM else f"{type(model).__name__} has no compiled steps"


class CompiledSteps(ABC):
    """Runs a batch's steps in one call; the table and the optimisers' state are changed in place."""

    kernel: Any

    def __init__(
        self,
        model: GradientModel,
        rows: RowOptimiser,
        dense: torch.optim.Optimizer,
        options: TrainingOptions,
    ) -> None:
        self._lanes = min(options.threads or torch.get_num_threads(), _numba_threads())
        self._ids_only = isinstance(model, PairwiseModel) and model.ids_only
        self._line = DenseLine(self.parameters(model), dense)
        line = (self._line.values, self._line.first, self._line.second, self._line.updates)
        self._dense = Dense(*(one.numpy().reshape(1, -1) for one in line))
        state = {name: one.numpy() for name, one in rows.state().items()}
        first = state.get("first", state.get("squares", _NOTHING))
        self._rows = Rows(
            rows.table.numpy(),
            first,
            state.get("second", first),
            state.get("count", _NOTHING),
            np.full(len(rows.table), -1, np.int32),
        )
        self._rule = Rule(
            OPTIMISERS.index(options.optimiser),
            OBJECTIVES.index(options.loss),
            np.float32(rows.lr),
            np.float32(rows.weight_decay),
            *fading(),
        )
        self._room: tuple[tuple[int, ...], Any] | None = None

    @abstractmethod
    def parameters(self, model: GradientModel) -> list[nn.Parameter]:
        """In the order of the kernel's line."""

    @abstractmethod
    def shape(self) -> Any: ...

    @abstractmethod
    def work(self, size: int, most: int, groups: Groups) -> Any:
        """Room for steps of `size` groups with at most `most` distinct rows."""

    def run(self, batch: Batch, size: int, loss: str | None = None) -> Iterator[tuple[float, int]]:
        """Steps of `size` groups: after all of them their mean loss and how many instances they had.

        Where a step's loss is no number, that loss, and the table as it was before the step."""
        import numba

        groups = self.groups(batch)
        for ids in (groups.user_ids, groups.item_ids):
            # Compiled code writes wherever it is told to; this look costs a thousandth of the steps.
            if ids.size and not (0 <= ids.min() and ids.max() < len(self._rows.table)):
                raise DataError(f"a batch names row {ids.max():,}; the table has {len(self._rows.table):,}.")
        losses = np.zeros(-(-len(batch) // size), np.float32)
        rule = self._rule if loss is None else self._rule._replace(objective=OBJECTIVES.index(loss))
        tell_if_compiling(self.kernel)
        with _ONE_AT_A_TIME, _one_blas_thread():
            before = numba.get_num_threads()
            numba.set_num_threads(self._lanes)
            try:
                self.kernel(
                    self.shape(),
                    rule,
                    groups,
                    size,
                    self._rows,
                    self._dense,
                    self._work(min(size, len(batch)), groups),
                    self._lanes,
                    losses,
                )
            finally:
                numba.set_num_threads(before)
        self._line.tell_optimiser()
        yield mean_loss(losses, len(batch), size), batch.labels.size

    def groups(self, batch: Batch) -> Groups:
        ids = slice(0, 1) if self._ids_only else slice(None)
        return Groups(
            np.ascontiguousarray(batch.user_ids[..., ids]),
            np.ascontiguousarray(batch.user_x[..., ids]),
            np.ascontiguousarray(batch.item_ids[..., ids]),
            np.ascontiguousarray(batch.item_x[..., ids]),
            np.ascontiguousarray(batch.labels),
            np.empty(0, np.float32) if batch.weights is None else np.ascontiguousarray(batch.weights),
        )

    def _work(self, size: int, groups: Groups) -> Any:
        user_width, item_width = groups.user_ids.shape[1], groups.item_ids[0].size
        most = min(size * (user_width + item_width), len(self._rows.table))
        key = (size, most, user_width, *groups.item_ids.shape[1:])
        if self._room is None or self._room[0] != key:
            self._room = key, self.work(size, most, groups)
        return self._room[1]

    def _slots(self, size: int, most: int, groups: Groups) -> tuple[Any, Any, Any]:
        return (
            np.empty(most, np.int32),
            np.empty((size, groups.user_ids.shape[1]), np.int32),
            np.empty((size, *groups.item_ids.shape[1:]), np.int32),
        )

    def _floats(self, *shape: int) -> Floats:
        """From the start of a cache line on: rows of whole lines are then never read across two."""
        size = math.prod(shape)
        room = np.empty(size + 16, np.float32)
        begin = (-room.ctypes.data // 4) % 16
        return room[begin : begin + size].reshape(shape)


class GmlSteps(CompiledSteps):
    kernel = staticmethod(gml.run_steps)

    def parameters(self, model: GradientModel) -> list[nn.Parameter]:
        assert isinstance(model, GMLFM)
        found = gml_line(model)
        self._shape = gml.Shape(model.k, found.layers, found.activation, found.biased, found.unit, found.cosine)
        return found.parameters

    def shape(self) -> gml.Shape:
        return self._shape

    def work(self, size: int, most: int, groups: Groups) -> gml.Work:
        k, lanes = self._shape.k, self._lanes
        return gml.Work(
            *self._slots(size, most, groups),
            self._floats(self._shape.layers + 1, most, k),
            self._floats(most, k),
            self._floats(most),
            self._floats(most),
            self._floats(lanes, most, 1),
            self._floats(lanes, most, k),
            self._floats(lanes, most, k),
            self._floats(lanes, self._dense.values.size),
            self._floats(lanes),
        )


class SumSteps(CompiledSteps):
    kernel = staticmethod(sums.run_steps)

    def parameters(self, model: GradientModel) -> list[nn.Parameter]:
        assert isinstance(model, (FM, MF, TransFM))
        decay = (model.lambda_user, model.lambda_item) if isinstance(model, MF) else (0.0, 0.0)
        biased = model.biases if isinstance(model, MF) else True
        self._shape = sums.Shape(model.k, isinstance(model, TransFM), biased, np.float32(decay[0]), np.float32(decay[1]))
        return [model.bias]

    def shape(self) -> sums.Shape:
        return self._shape

    def work(self, size: int, most: int, groups: Groups) -> sums.Work:
        width, lanes = self._rows.table.shape[1], self._lanes
        return sums.Work(
            *self._slots(size, most, groups),
            self._floats(most, width),
            self._floats(lanes, most, width),
            self._floats(lanes, 1),
            self._floats(lanes),
        )


def compiled_steps(
    model: GradientModel, rows: RowOptimiser, dense: torch.optim.Optimizer, options: TrainingOptions
) -> CompiledSteps:
    kind = GmlSteps if isinstance(model, GMLFM) else SumSteps
    return kind(model, rows, dense, options)


def _numba_threads() -> int:
    """The most threads that numba was started with."""
    from numba.core import config

    settings: Any = config
    return int(settings.NUMBA_NUM_THREADS)


def _one_blas_thread() -> Any:
    """Each lane calls the BLAS by itself; a pool of its own under each would fight the lanes for the cores."""
    return _BLAS.limit(limits=1, user_api="blas")
