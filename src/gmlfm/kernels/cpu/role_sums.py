"""What a user did before, as sums of item vectors by role, on a CPU: along a piece a row costs O(R D), whatever its history."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from gmlfm.kernels.cpu.arrays import Floats, Longs
from gmlfm.kernels.cpu.parts import Parts
from gmlfm.kernels.cpu.role_walks import (
    Doubles,
    PieceArrays,
    add_last,
    add_last_back,
    add_windows,
    add_windows_back,
    clear_columns,
    clear_sums,
)

_PIECES_PER_PART = 16
_COLUMNS_PER_PART = 32  # two cache lines: threads that write to the same rows do not write to the same lines


class CpuRoleSums:
    """`role_sums` and its way back in float32, for batches in pieces. Another number of threads gives the same numbers.

    Forward, threads take pieces; back, roles and columns: no two of them add to the same number, and each adds piece after
    piece. Items that do not exist are not looked for: compiled code reads and writes wherever it is told to.
    """

    def __init__(self, roles: Sequence[str], half_life: float, parts: Parts) -> None:
        self._roles, self._half_life, self._parts = tuple(roles), half_life, parts
        self._powers: dict[str, Doubles] = {}
        self._batch: PieceArrays | None = None
        self._shape: tuple[int, ...] = ()
        self._scales: Floats = np.empty((0, 0), np.float32)
        self._youngest: Longs = np.empty((0, 0), np.int64)
        self._buffer: Floats = np.empty(0, np.float32)

    def forward(self, batch: PieceArrays, vectors: Floats, *, summed: bool) -> Floats:
        """vectors (R, M, D), those of the items in each role -> (R, B, D); summed: over the roles, (B, D)."""
        n_pieces, n_rows = len(batch.pieces) - 1, len(batch.row_stop)
        n_roles, _, width = self._shape = vectors.shape
        self._batch = batch
        self._set_powers(batch)
        self._scales, self._youngest = np.empty((n_roles, n_rows), np.float32), np.empty((n_roles, n_rows), np.int64)
        sums = np.empty((1 if summed else n_roles, n_rows, width), np.float32)

        def walk(part: int, thread: int) -> None:
            begin, end = part * _PIECES_PER_PART, min((part + 1) * _PIECES_PER_PART, n_pieces)
            for place, role in enumerate(self._roles):
                role_sums = sums[0 if summed else place]
                if place == 0 or not summed:
                    clear_sums(batch, begin, end, role_sums)
                if role == "last":
                    add_last(batch, vectors[place], begin, end, role_sums)
                else:
                    state = self._scales[place], self._youngest[place]
                    add_windows(batch, self._powers[role], vectors[place], begin, end, *state, role_sums)

        self._parts.run(walk, -(-n_pieces // _PIECES_PER_PART))
        result: Floats = sums[0] if summed else sums
        return result

    def backward(self, gradient: Floats) -> Floats:
        """The gradient at the vectors of the last call of forward, (R, M, D), from that at what it returned. It is overwritten
        by the next call."""
        batch, width = self._batch, self._shape[2]
        assert batch is not None
        size = math.prod(self._shape)
        if len(self._buffer) < size:  # new memory costs as much as a pass over it
            self._buffer = np.empty(size, np.float32)
        vector_grads, n_blocks = self._buffer[:size].reshape(self._shape), -(-width // _COLUMNS_PER_PART)

        def walk(part: int, thread: int) -> None:
            place, block = divmod(part, n_blocks)
            columns = np.uint64(block * _COLUMNS_PER_PART), np.uint64(min((block + 1) * _COLUMNS_PER_PART, width))
            role, row_grads = self._roles[place], gradient if gradient.ndim == 2 else gradient[place]
            clear_columns(vector_grads[place], *columns)
            if role == "last":
                add_last_back(batch, row_grads, *columns, vector_grads[place])
            else:
                state = self._scales[place], self._youngest[place]
                add_windows_back(batch, self._powers[role], *state, row_grads, *columns, vector_grads[place])

        self._parts.run(walk, len(self._roles) * n_blocks)
        return vector_grads

    def _set_powers(self, batch: PieceArrays) -> None:
        """The weight of each age that a batch can have."""
        spans = batch.row_stop[batch.pieces[1:] - 1] - batch.row_start[batch.pieces[:-1]]
        longest = int(spans.max(initial=0)) + 1
        if not self._powers or len(self._powers["past"]) < longest:
            self._powers = {"recent": 2.0 ** (-np.arange(longest) / self._half_life), "past": np.ones(longest)}
