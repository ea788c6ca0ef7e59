"""What a user did before, as sums of item vectors by role, on a CPU: along a piece a row costs O(R D), whatever its history."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

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
_HALF_LIVES = 32
_COLUMNS_PER_PART = 32  # two cache lines: threads that write to the same rows do not write to the same lines


class CpuRoleSums:
    """`role_sums` and its way back in float32, for batches in pieces. Another number of threads gives the same numbers.

    Forward, threads take pieces; back, roles and columns: no two of them add to the same number, and each adds piece after
    piece. Items that do not exist are not looked for: compiled code reads and writes wherever it is told to.
    """

    def __init__(self, roles: Sequence[str], half_life: float, parts: Parts) -> None:
        self._roles, self._half_life, self._parts = tuple(roles), half_life, parts
        self._powers: dict[str, Doubles] = {}
        self._batches: list[PieceArrays] = []
        self._shapes: list[tuple[int, int]] = []
        self._scales: Floats = np.empty((0, 0), np.float32)
        self._youngest: Longs = np.empty((0, 0), np.int64)
        self._buffer: Floats = np.empty(0, np.float32)

    def forward(self, batch: PieceArrays, vectors: Sequence[Floats], *, summed: bool) -> Floats:
        """vectors: by role (M, D), those of the items, of which a role may have only the first that it reads -> (R, B, D);
        summed: over the roles, (B, D)."""
        n_pieces, n_rows = len(batch.pieces) - 1, len(batch.row_stop)
        n_roles, width = len(self._roles), vectors[0].shape[1]
        self._shapes = [(len(of_items), width) for of_items in vectors]
        starts = recent_starts(batch.is_kept, batch.row_start, batch.row_stop, self._half_life)
        self._batches = [batch._replace(row_start=starts) if role == "recent" else batch for role in self._roles]
        self._set_powers(batch)
        self._scales, self._youngest = np.empty((n_roles, n_rows), np.float32), np.empty((n_roles, n_rows), np.int64)
        sums = np.empty((1 if summed else n_roles, n_rows, width), np.float32)

        def walk(part: int, thread: int) -> None:
            begin, end = part * _PIECES_PER_PART, min((part + 1) * _PIECES_PER_PART, n_pieces)
            for place, role in enumerate(self._roles):
                role_sums, role_batch = sums[0 if summed else place], self._batches[place]
                if place == 0 or not summed:
                    clear_sums(batch, begin, end, role_sums)
                if role == "last":
                    add_last(role_batch, vectors[place], begin, end, role_sums)
                else:
                    state = self._scales[place], self._youngest[place]
                    add_windows(role_batch, self._powers[role], vectors[place], begin, end, *state, role_sums)

        self._parts.run(walk, -(-n_pieces // _PIECES_PER_PART))
        result: Floats = sums[0] if summed else sums
        return result

    def backward(self, gradient: Floats) -> list[Floats]:
        """The gradients at the vectors of the last call of forward, by role (M, D), from that at what it returned. They are
        overwritten by the next call."""
        width, sizes = self._shapes[0][1], [math.prod(shape) for shape in self._shapes]
        if len(self._buffer) < sum(sizes):  # new memory costs as much as a pass over it
            self._buffer = np.empty(sum(sizes), np.float32)
        blocks = np.split(self._buffer[: sum(sizes)], np.cumsum(sizes)[:-1])
        vector_grads = [block.reshape(shape) for block, shape in zip(blocks, self._shapes, strict=True)]
        n_blocks = -(-width // _COLUMNS_PER_PART)

        def walk(part: int, thread: int) -> None:
            place, block = divmod(part, n_blocks)
            columns = np.uint64(block * _COLUMNS_PER_PART), np.uint64(min((block + 1) * _COLUMNS_PER_PART, width))
            role, row_grads = self._roles[place], gradient if gradient.ndim == 2 else gradient[place]
            clear_columns(vector_grads[place], *columns)
            if role == "last":
                add_last_back(self._batches[place], row_grads, *columns, vector_grads[place])
            else:
                state = self._scales[place], self._youngest[place]
                add_windows_back(self._batches[place], self._powers[role], *state, row_grads, *columns, vector_grads[place])

        self._parts.run(walk, len(self._roles) * n_blocks)
        return vector_grads

    def _set_powers(self, batch: PieceArrays) -> None:
        """The weight of each age that a batch can have."""
        spans = batch.row_stop[batch.pieces[1:] - 1] - batch.row_start[batch.pieces[:-1]]
        longest = int(spans.max(initial=0)) + 1
        if not self._powers or len(self._powers["past"]) < longest:
            self._powers = {"recent": 2.0 ** (-np.arange(longest) / self._half_life), "past": np.ones(longest)}


def recent_starts(is_kept: npt.NDArray[np.bool_], row_start: Longs, row_stop: Longs, half_life: float) -> Longs:
    """Where the windows of the role `recent` begin: what is 32 half-lives older than the youngest kept event of a window counts
    for less than float32 tells from nothing. The windows as they are where none reaches so far."""
    reach = math.ceil(_HALF_LIVES * half_life)
    if int((row_stop - row_start).max(initial=0)) <= reach:
        return row_start
    youngest = np.maximum.accumulate(np.where(is_kept, np.arange(len(is_kept)), -1))
    starts: Longs = np.maximum(row_start, np.where(row_stop > 0, youngest[row_stop - 1] - reach, 0))
    return starts
