r"""Sums of outer products over the attributes of some entities, there and back: kernels/outer_sums.py has the equation.

Every number of a row is read once an occurrence, and no row's outer product is ever held. On the way back a row's gradient is
added up by one thread, from the places where the row occurs, in their order.
"""

from __future__ import annotations

import numpy as np

from gmlfm.kernels.cpu.arrays import Floats, Longs
from gmlfm.kernels.cpu.jit import compiled

_ZERO, _HALF = np.float32(0.0), np.float32(0.5)


@compiled
def add_outer(
    rows: Floats, k: int, ids: Longs, x: Floats, linear: Floats, vectors: Floats, inner: Floats, begin: int, end: int
) -> None:
    """The entities begin to end. rows: (U, 1 + K + R); linear: (N,), vectors: (N, K (1 + R)) and inner: (N,), written over;
    inner of length 0 is left alone."""
    rank, has_inner = rows.shape[1] - 1 - k, inner.size > 0
    for n in range(begin, end):
        for d in range(vectors.shape[1]):
            vectors[n, d] = _ZERO
        total, squares = _ZERO, _ZERO
        for f in range(ids.shape[1]):
            amount, row = x[n, f], ids[n, f]
            if amount == 0:
                continue
            total += amount * rows[row, 0]
            for d in range(k):
                vectors[n, d] += amount * rows[row, 1 + d]
            for r in range(rank):
                scale, first = amount * rows[row, 1 + k + r], (1 + r) * k
                for d in range(k):
                    vectors[n, first + d] += scale * rows[row, 1 + d]
            if has_inner:
                square = _ZERO
                for d in range(k):
                    square += rows[row, 1 + d] * rows[row, 1 + d]
                squares += amount * amount * square
        linear[n] = total
        if has_inner:
            square = _ZERO
            for d in range(k):
                square += vectors[n, d] * vectors[n, d]
            inner[n] = _HALF * (square - squares)


@compiled
def list_occurrences(ids: Longs, x: Floats, starts: Longs, places: Longs) -> None:
    """Where each row occurs: row u at the places places[starts[u]:starts[u + 1]] of ids, in order; x = 0 is none."""
    for row in range(starts.size):
        starts[row] = 0
    for n in range(ids.shape[0]):
        for f in range(ids.shape[1]):
            if x[n, f] != 0:
                starts[ids[n, f]] += 1
    total = 0
    for row in range(starts.size):
        total += starts[row]
        starts[row] = total
    for n in range(ids.shape[0] - 1, -1, -1):
        for f in range(ids.shape[1] - 1, -1, -1):
            if x[n, f] != 0:
                row = ids[n, f]
                starts[row] -= 1
                places[starts[row]] = n * ids.shape[1] + f


@compiled
def add_outer_back(
    rows: Floats,
    k: int,
    x: Floats,
    starts: Longs,
    places: Longs,
    vectors: Floats,
    linear_grads: Floats,
    grads: Floats,
    inner_grads: Floats,
    row_grads: Floats,
    begin: int,
    end: int,
) -> None:
    """The gradient at the rows begin to end, written over; inner_grads of length 0: inner was not asked for."""
    rank, width, has_inner = rows.shape[1] - 1 - k, x.shape[1], inner_grads.size > 0
    for row in range(begin, end):
        for d in range(row_grads.shape[1]):
            row_grads[row, d] = _ZERO
        for entry in range(starts[row], starts[row + 1]):
            n = places[entry] // width
            amount = x[n, places[entry] - n * width]
            row_grads[row, 0] += amount * linear_grads[n]
            for d in range(k):
                row_grads[row, 1 + d] += amount * grads[n, d]
            if has_inner:
                scale = amount * inner_grads[n]
                own = scale * amount
                for d in range(k):
                    row_grads[row, 1 + d] += scale * vectors[n, d] - own * rows[row, 1 + d]
            for r in range(rank):
                scale, first, by_z = amount * rows[row, 1 + k + r], (1 + r) * k, _ZERO
                for d in range(k):
                    row_grads[row, 1 + d] += scale * grads[n, first + d]
                for d in range(k):
                    by_z += rows[row, 1 + d] * grads[n, first + d]
                row_grads[row, 1 + k + r] += amount * by_z
