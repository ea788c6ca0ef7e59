r"""Sums of outer products over the attributes of some entities, there and back: kernels/outer_sums.py has the equation.

Every number of a row is read once an occurrence, and no row's outer product is ever held.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gmlfm.kernels.cpu.arrays import Floats, Longs
from gmlfm.kernels.cpu.jit import compiled

_ZERO = np.float32(0.0)


@compiled
def add_outer(rows: Floats, k: int, ids: Longs, x: Floats, linear: Floats, vectors: Floats, begin: int, end: int) -> None:
    """The entities begin to end. rows: (U, 1 + K + R); linear: (N,) and vectors: (N, K (1 + R)), written over."""
    rank = rows.shape[1] - 1 - k
    for n in range(begin, end):
        for d in range(vectors.shape[1]):
            vectors[n, d] = _ZERO
        total = _ZERO
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
        linear[n] = total


@compiled
def add_outer_back(
    rows: Floats, k: int, ids: Longs, x: Floats, linear_grads: Floats, grads: Floats, row_grads: Floats, begin: int, end: int
) -> None:
    """The gradient at rows that the entities begin to end give, added up in row_grads."""
    rank = rows.shape[1] - 1 - k
    for n in range(begin, end):
        for f in range(ids.shape[1]):
            amount, row = x[n, f], ids[n, f]
            if amount == 0:
                continue
            row_grads[row, 0] += amount * linear_grads[n]
            for d in range(k):
                row_grads[row, 1 + d] += amount * grads[n, d]
            for r in range(rank):
                scale, first, by_z = amount * rows[row, 1 + k + r], (1 + r) * k, _ZERO
                for d in range(k):
                    row_grads[row, 1 + d] += scale * grads[n, first + d]
                for d in range(k):
                    by_z += rows[row, 1 + d] * grads[n, first + d]
                row_grads[row, 1 + k + r] += amount * by_z


@compiled
def sum_parts(parts: Any, begin: int, end: int) -> None:
    """parts: (P, U, width); the first one becomes the sum of all, rows begin to end."""
    for part in range(1, parts.shape[0]):
        for row in range(begin, end):
            for d in range(parts.shape[2]):
                parts[0, row, d] += parts[part, row, d]
