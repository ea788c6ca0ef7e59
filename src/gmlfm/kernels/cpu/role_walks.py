"""Sums over windows that move along a user's events, there and back. The twin of gmlfm.kernels.role_sums.

The rows of a piece belong to one user, and their windows never move back: what enters is added, what leaves is taken off. With
the powers 2^(-age / half_life) that is the role `recent`, with ones `past`. Ages are counted from the youngest kept event of a
window: unit length takes a common factor away.

Running sums are in float64, so that what a large vector leaves behind when it is taken off does not show in float32.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gmlfm.kernels.cpu.arrays import Floats, Ints, Longs
from gmlfm.kernels.cpu.jit import compiled
from gmlfm.kernels.cpu.maths import clear

Doubles = npt.NDArray[np.float64]
_ZERO = np.float32(0.0)


class PieceArrays(NamedTuple):
    """The windows of B rows, as gmlfm.kernels.role_sums.Windows has them. pieces (P + 1,): the rows of piece p are
    pieces[p]:pieces[p + 1], at least one, and their row_start and row_stop never fall."""

    events: Ints
    is_kept: npt.NDArray[np.bool_]
    row_start: Longs
    row_stop: Longs
    pieces: Longs


@compiled
def clear_sums(batch: PieceArrays, begin: int, end: int, sums: Floats) -> None:
    for row in range(batch.pieces[begin], batch.pieces[end]):
        clear(sums, row)


@compiled
def add_last(batch: PieceArrays, vectors: Floats, begin: int, end: int, sums: Floats) -> None:
    """The pieces begin to end: the vector of each row's latest event is added to its row of sums."""
    for row in range(batch.pieces[begin], batch.pieces[end]):
        if batch.row_stop[row] > batch.row_start[row]:
            item = batch.events[batch.row_stop[row] - 1]
            for k in range(sums.shape[1]):
                sums[row, k] += vectors[item, k]


@compiled
def add_windows(
    batch: PieceArrays,
    powers: Doubles,
    vectors: Floats,
    begin: int,
    end: int,
    scales: Floats,
    youngest: Longs,
    sums: Floats,
) -> None:
    """The pieces begin to end: the sum over each row's window of vectors (M, D) is added to its row of sums (B, D).

    scales (B,): becomes 1 / the length of the row's weights, 0 where nothing is kept; youngest (B,): its youngest kept event.
    """
    width = vectors.shape[1]
    total = np.zeros(width)
    for piece in range(begin, end):
        start, stop, newest, n_kept, squares = 0, 0, 0, 0, 0.0
        for row in range(batch.pieces[piece], batch.pieces[piece + 1]):
            if batch.row_start[row] >= stop:  # the windows have nothing in common
                start, stop, n_kept = batch.row_start[row], batch.row_start[row], 0
            for event in range(stop, batch.row_stop[row]):
                if batch.is_kept[event]:
                    decay, item = powers[event - newest] if n_kept > 0 else 0.0, batch.events[event]
                    for k in range(width):
                        total[k] = decay * total[k] + vectors[item, k]
                    squares = decay * decay * squares + 1.0
                    newest = event
                    n_kept += 1
            for event in range(start, batch.row_start[row]):
                if batch.is_kept[event]:
                    weight, item = powers[newest - event], batch.events[event]
                    for k in range(width):
                        total[k] -= weight * vectors[item, k]
                    squares -= weight * weight
                    n_kept -= 1
            start, stop = batch.row_start[row], batch.row_stop[row]
            scales[row], youngest[row] = _ZERO, newest
            if n_kept > 0:
                scale = 1.0 / np.sqrt(squares)
                scales[row] = scale
                for k in range(width):
                    sums[row, k] += scale * total[k]


@compiled
def clear_columns(target: Floats, low: Any, high: Any) -> None:
    for i in range(target.shape[0]):
        for k in range(low, high):
            target[i, k] = _ZERO


@compiled
def add_last_back(batch: PieceArrays, gradient: Floats, low: Any, high: Any, vector_grads: Floats) -> None:
    """The columns low to high, unsigned: an index that cannot be negative makes vector loops."""
    for row in range(gradient.shape[0]):
        if batch.row_stop[row] > batch.row_start[row]:
            item = batch.events[batch.row_stop[row] - 1]
            for k in range(low, high):
                vector_grads[item, k] += gradient[row, k]


@compiled
def add_windows_back(
    batch: PieceArrays,
    powers: Doubles,
    scales: Floats,
    youngest: Longs,
    gradient: Floats,
    low: Any,
    high: Any,
    vector_grads: Floats,
) -> None:
    """The way back of `add_windows`: gradient (B, D) at the sums -> vector_grads (M, D), the columns low to high, unsigned.

    From a piece's youngest event to its oldest: a row's gradient enters at the row's youngest kept event and leaves below the
    start of its window, and the running sum is the gradient at the vector of the event.
    """
    total = np.zeros(gradient.shape[1])
    for piece in range(batch.pieces.size - 1):
        begin, end = batch.pieces[piece], batch.pieces[piece + 1]
        entering, leaving, place, n_rows = end - 1, end - 1, 0, 0
        for event in range(batch.row_stop[end - 1] - 1, batch.row_start[begin] - 1, -1):
            if not batch.is_kept[event]:
                continue
            while leaving >= begin and batch.row_start[leaving] > event:
                if scales[leaving] > 0:
                    weight = powers[youngest[leaving] - place] * scales[leaving]
                    for k in range(low, high):
                        total[k] -= weight * gradient[leaving, k]
                    n_rows -= 1
                leaving -= 1
            decay, place = powers[place - event] if n_rows > 0 else 0.0, event
            item = batch.events[event]
            if n_rows > 0:  # what is younger and has its window here, then what enters
                for k in range(low, high):
                    total[k] *= decay
                    vector_grads[item, k] += total[k]
            else:
                for k in range(low, high):
                    total[k] = 0.0
            while entering >= begin and (scales[entering] == 0 or youngest[entering] == event):
                if scales[entering] > 0:
                    scale = np.float64(scales[entering])  # what leaves must be what came, to the last bit of float64
                    for k in range(low, high):
                        share = scale * gradient[entering, k]
                        total[k] += share
                        vector_grads[item, k] += share
                    n_rows += 1
                entering -= 1
