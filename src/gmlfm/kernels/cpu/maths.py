"""The innermost loops, over one row of each matrix.

Rows are named by their number: a view of a row would count references to its matrix, and two threads that count at one place
cost more than the row itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gmlfm.kernels.codes import RELU, SIGMOID, TANH
from gmlfm.kernels.cpu.arrays import Floats, Ints
from gmlfm.kernels.cpu.jit import compiled

_ZERO, _ONE, _HALF = np.float32(0.0), np.float32(1.0), np.float32(0.5)
_NEARLY_ONE = np.float32(9.0)
# x P(x^2) / Q(x^2), fitted to tanh up to 9, where it is 1 in float32; at most 2e-8 off, before rounding.
_P1, _P2, _P3, _P4 = (np.float32(p) for p in (0.13381027, 0.0034955894, 2.06091e-05, 1.3354685e-08))
_Q1, _Q2, _Q3, _Q4 = (np.float32(q) for q in (0.46714342, 0.025876988, 0.00032856368, 7.7765685e-07))
_SMALLEST, _LARGEST_INVERSE = np.float32(1e-12), np.float32(1e6)


@compiled
def tanh(x: Any) -> Any:
    """By a fraction of polynomials: no call and one division, so that loops over it become vector loops."""
    y = min(max(x, -_NEARLY_ONE), _NEARLY_ONE)
    y2 = y * y
    above = _ONE + y2 * (_P1 + y2 * (_P2 + y2 * (_P3 + y2 * _P4)))
    return y * above / (_ONE + y2 * (_Q1 + y2 * (_Q2 + y2 * (_Q3 + y2 * _Q4))))


@compiled
def activate(activation: int, rows: Floats, i: int) -> None:
    """Row i, in place."""
    if activation == TANH:
        for k in range(rows.shape[1]):
            rows[i, k] = tanh(rows[i, k])
    elif activation == RELU:
        for k in range(rows.shape[1]):
            rows[i, k] = max(rows[i, k], _ZERO)
    elif activation == SIGMOID:
        for k in range(rows.shape[1]):
            rows[i, k] = _HALF + _HALF * tanh(_HALF * rows[i, k])


@compiled
def through_activation(activation: int, out: Floats, i: int, gradient: Floats, j: int) -> None:
    """The gradient (row j) at what went in, from that at what came out (row i of out), in place."""
    if activation == TANH:
        for k in range(out.shape[1]):
            gradient[j, k] *= _ONE - out[i, k] * out[i, k]
    elif activation == RELU:
        for k in range(out.shape[1]):
            gradient[j, k] = gradient[j, k] if out[i, k] > 0 else _ZERO
    elif activation == SIGMOID:
        for k in range(out.shape[1]):
            gradient[j, k] *= out[i, k] * (_ONE - out[i, k])


@compiled
def to_unit_length(source: Floats, target: Floats, i: int) -> Any:
    """target = source / |source|; returns 1 / |source|, negative for a vector so short that it is only scaled."""
    squares = _ZERO
    for k in range(source.shape[1]):
        squares += source[i, k] * source[i, k]
    short = squares <= _SMALLEST
    inverse = _LARGEST_INVERSE if short else _ONE / np.sqrt(squares)
    for k in range(source.shape[1]):
        target[i, k] = source[i, k] * inverse
    return -inverse if short else inverse


@compiled
def through_unit_length(unit: Floats, i: int, inverse: Any, gradient: Floats, j: int) -> None:
    """The gradient at the vector from that at its unit form, in place."""
    along = _ZERO
    if inverse > 0:
        for k in range(unit.shape[1]):
            along += unit[i, k] * gradient[j, k]
    size = abs(inverse)
    for k in range(unit.shape[1]):
        gradient[j, k] = size * (gradient[j, k] - along * unit[i, k])


@compiled
def clear(target: Floats, i: int) -> None:
    for k in range(target.shape[1]):
        target[i, k] = _ZERO


@compiled
def dot(left: Floats, i: int, right: Floats, j: int) -> Any:
    total = _ZERO
    for k in range(left.shape[1]):
        total += left[i, k] * right[j, k]
    return total


@compiled
def add_scaled(target: Floats, i: int, scale: Any, source: Floats, j: int) -> None:
    for k in range(target.shape[1]):
        target[i, k] += scale * source[j, k]


@compiled
def add_difference(target: Floats, i: int, scale: Any, source: Floats, j: int, less: int) -> None:
    for k in range(target.shape[1]):
        target[i, k] += scale * (source[j, k] - source[less, k])


@compiled
def add_four(target: Floats, i: int, scales: Any, source: Floats, rows: Any) -> None:
    """Four rows of the source, each times its scale."""
    a, b, c, d = scales
    p, q, r, s = rows
    for k in range(target.shape[1]):
        target[i, k] += a * source[p, k] + b * source[q, k] + c * source[r, k] + d * source[s, k]


@compiled
def add_four_differences(target: Floats, i: int, scales: Any, source: Floats, rows: Any, less: Floats, j: int) -> None:
    """Four rows of the source, row j of `less` taken off, each times its scale."""
    a, b, c, d = scales
    p, q, r, s = rows
    for k in range(target.shape[1]):
        x = less[j, k]
        target[i, k] += a * (source[p, k] - x) + b * (source[q, k] - x) + c * (source[r, k] - x) + d * (source[s, k] - x)


@compiled
def four_dots(left: Floats, i: int, right: Floats, j: int) -> Any:
    """The products of row i with the four rows of right from j on."""
    a, b, c, d = _ZERO, _ZERO, _ZERO, _ZERO
    for k in range(left.shape[1]):
        x = left[i, k]
        a += x * right[j, k]
        b += x * right[j + 1, k]
        c += x * right[j + 2, k]
        d += x * right[j + 3, k]
    return a, b, c, d


@compiled
def four_distances(left: Floats, i: int, right: Floats, j: int) -> Any:
    """The squared distances of row i to the four rows of right from j on, by differences: near points keep their digits."""
    a, b, c, d = _ZERO, _ZERO, _ZERO, _ZERO
    for k in range(left.shape[1]):
        x = left[i, k]
        a += (x - right[j, k]) * (x - right[j, k])
        b += (x - right[j + 1, k]) * (x - right[j + 1, k])
        c += (x - right[j + 2, k]) * (x - right[j + 2, k])
        d += (x - right[j + 3, k]) * (x - right[j + 3, k])
    return a, b, c, d


@compiled
def four_ints(source: Ints, i: int) -> Any:
    return source[i], source[i + 1], source[i + 2], source[i + 3]
