"""The innermost loops, over one row of each matrix.

Rows are named by their number: a view of a row would count references to its matrix, and two threads that count at one place
cost more than the row itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gmlfm.kernels.cpu.arrays import Floats, Ints
from gmlfm.kernels.cpu.jit import inlined

_ZERO, _ONE, _HALF = np.float32(0.0), np.float32(1.0), np.float32(0.5)
_NEARLY_ONE = np.float32(9.0)
# x P(x^2) / Q(x^2), fitted to tanh up to 9, where it is 1 in float32; at most 2e-8 off, before rounding.
_P1, _P2, _P3, _P4 = (np.float32(one) for one in (0.13381027, 0.0034955894, 2.06091e-05, 1.3354685e-08))
_Q1, _Q2, _Q3, _Q4 = (np.float32(one) for one in (0.46714342, 0.025876988, 0.00032856368, 7.7765685e-07))
_SMALLEST, _LARGEST_INVERSE = np.float32(1e-12), np.float32(1e6)


@inlined
def tanh(x: Any) -> Any:
    """By a fraction of polynomials: no call and one division, so that loops over it become vector loops."""
    y = min(max(x, -_NEARLY_ONE), _NEARLY_ONE)
    y2 = y * y
    above = _ONE + y2 * (_P1 + y2 * (_P2 + y2 * (_P3 + y2 * _P4)))
    return y * above / (_ONE + y2 * (_Q1 + y2 * (_Q2 + y2 * (_Q3 + y2 * _Q4))))


@inlined
def activate(kind: int, rows: Floats, at: int) -> None:
    """0 identity, 1 tanh, 2 relu, 3 sigmoid."""
    if kind == 1:
        for k in range(rows.shape[1]):
            rows[at, k] = tanh(rows[at, k])
    elif kind == 2:
        for k in range(rows.shape[1]):
            rows[at, k] = max(rows[at, k], _ZERO)
    elif kind == 3:
        for k in range(rows.shape[1]):
            rows[at, k] = _HALF + _HALF * tanh(_HALF * rows[at, k])


@inlined
def through_activation(kind: int, out: Floats, at: int, gradient: Floats, to: int) -> None:
    """The gradient of what went in, from that of what came out, in place."""
    if kind == 1:
        for k in range(out.shape[1]):
            gradient[to, k] *= _ONE - out[at, k] * out[at, k]
    elif kind == 2:
        for k in range(out.shape[1]):
            gradient[to, k] = gradient[to, k] if out[at, k] > 0 else _ZERO
    elif kind == 3:
        for k in range(out.shape[1]):
            gradient[to, k] *= out[at, k] * (_ONE - out[at, k])


@inlined
def to_unit_length(source: Floats, target: Floats, at: int) -> Any:
    """target = source / |source|; returns 1 / |source|, negative for a vector so short that it is only scaled."""
    squares = _ZERO
    for k in range(source.shape[1]):
        squares += source[at, k] * source[at, k]
    short = squares <= _SMALLEST
    inverse = _LARGEST_INVERSE if short else _ONE / np.sqrt(squares)
    for k in range(source.shape[1]):
        target[at, k] = source[at, k] * inverse
    return -inverse if short else inverse


@inlined
def through_unit_length(unit: Floats, at: int, inverse: Any, gradient: Floats, to: int) -> None:
    """The gradient of the vector from that of its unit form, in place."""
    along = _ZERO
    if inverse > 0:
        for k in range(unit.shape[1]):
            along += unit[at, k] * gradient[to, k]
    size = abs(inverse)
    for k in range(unit.shape[1]):
        gradient[to, k] = size * (gradient[to, k] - along * unit[at, k])


@inlined
def clear(target: Floats, to: int) -> None:
    for k in range(target.shape[1]):
        target[to, k] = _ZERO


@inlined
def dot(left: Floats, i: int, right: Floats, j: int) -> Any:
    total = _ZERO
    for k in range(left.shape[1]):
        total += left[i, k] * right[j, k]
    return total


@inlined
def add_scaled(target: Floats, to: int, scale: Any, source: Floats, at: int) -> None:
    for k in range(target.shape[1]):
        target[to, k] += scale * source[at, k]


@inlined
def add_difference(target: Floats, to: int, scale: Any, source: Floats, at: int, less: int) -> None:
    for k in range(target.shape[1]):
        target[to, k] += scale * (source[at, k] - source[less, k])


@inlined
def add_four(target: Floats, to: int, scales: Any, source: Floats, at: Any) -> None:
    """Four rows of the source, each times its scale."""
    a, b, c, d = scales
    one, two, three, four = at
    for k in range(target.shape[1]):
        target[to, k] += a * source[one, k] + b * source[two, k] + c * source[three, k] + d * source[four, k]


@inlined
def four_dots(line: Floats, at: int, others: Floats, first: int) -> Any:
    """The products of a row with the four rows of others from `first` on."""
    a, b, c, d = _ZERO, _ZERO, _ZERO, _ZERO
    for k in range(line.shape[1]):
        x = line[at, k]
        a += x * others[first, k]
        b += x * others[first + 1, k]
        c += x * others[first + 2, k]
        d += x * others[first + 3, k]
    return a, b, c, d


@inlined
def four_ints(source: Ints, at: int) -> Any:
    return source[at], source[at + 1], source[at + 2], source[at + 3]
