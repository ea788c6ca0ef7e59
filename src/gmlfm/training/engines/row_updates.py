"""How a step's rows are written back: compiled where the optimiser has a kernel, else as the optimiser itself does it."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from gmlfm.kernels.codes import OPTIMISER_CODES
from gmlfm.kernels.cpu.arrays import Rows, Rule
from gmlfm.kernels.cpu.parts import Parts
from gmlfm.kernels.cpu.row_updates import update_rows
from gmlfm.training.engines.packing import bias_corrections
from gmlfm.training.rows import ROW_OPTIMISERS, RowOptimiser

_ROWS_PER_PART = 1024
_NO_STATE = np.zeros((1, 1), np.float32)


class RowUpdates:
    """On a CPU one pass over the rows and their state instead of one an operation; the same updates, to rounding."""

    def __init__(self, rows: RowOptimiser, parts: Parts) -> None:
        self._optimiser, self._parts = rows, parts
        self._arrays: Rows | None = None
        codes = {ROW_OPTIMISERS[name]: code for name, code in OPTIMISER_CODES.items()}
        if rows.table.device.type != "cpu" or type(rows) not in codes:
            return
        state = {name: tensor.numpy() for name, tensor in rows.state().items()}
        first_moment = state.get("first", state.get("squares", _NO_STATE))
        second_moment, updates = state.get("second", first_moment), state.get("count", _NO_STATE)
        self._arrays = Rows(rows.table.numpy(), first_moment, second_moment, updates, np.empty(0, np.int32))
        self._code, self._corrections = codes[type(rows)], bias_corrections()

    def step(self, numbers: Tensor, values: Tensor, gradient: Tensor) -> None:
        """numbers: (U,) distinct rows; values, gradient: (U, width), the rows as they were gathered."""
        if self._arrays is None:
            self._optimiser.step(numbers, values, gradient)
            return
        optimiser, arrays, n_rows = self._optimiser, self._arrays, len(numbers)
        rule = Rule(self._code, 0, np.float32(optimiser.lr), np.float32(optimiser.weight_decay), *self._corrections)
        places, gradients = numbers.numpy(), gradient.contiguous().numpy()

        def update(part: int, thread: int) -> None:
            begin = part * _ROWS_PER_PART
            update_rows(rule, arrays, places, gradients, begin, min(begin + _ROWS_PER_PART, n_rows))

        with torch.no_grad():
            self._parts.run(update, -(-n_rows // _ROWS_PER_PART))
