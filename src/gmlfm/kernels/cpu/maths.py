"""The innermost loops."""

from __future__ import annotations

from typing import Any

import numpy as np

from gmlfm.kernels.cpu.arrays import Floats
from gmlfm.kernels.cpu.jit import compiled

_ONE, _TWO, _HALF = np.float32(1.0), np.float32(2.0), np.float32(0.5)
_NEARLY_ONE, _EIGHTH = np.float32(9.0), np.float32(0.125)
# The continued fraction of tanh, cut after its sixth term: right to float32 up to 9/8.
_P0, _P1, _P2 = np.float32(10395.0), np.float32(1260.0), np.float32(21.0)
_Q1, _Q2 = np.float32(4725.0), np.float32(210.0)
_SMALLEST, _LARGEST_INVERSE = np.float32(1e-12), np.float32(1e6)


@compiled
def tanh(x: Any) -> Any:
    """By the fraction at x/8 and three times tanh 2y = 2t / (1 + t^2): no call, so that loops over it become vector loops."""
    y = min(max(x, -_NEARLY_ONE), _NEARLY_ONE) * _EIGHTH
    y2 = y * y
    t = y * (_P0 + y2 * (_P1 + y2 * _P2)) / (_P0 + y2 * (_Q1 + y2 * (_Q2 + y2)))
    t = _TWO * t / (_ONE + t * t)
    t = _TWO * t / (_ONE + t * t)
    return _TWO * t / (_ONE + t * t)


@compiled
def activate(kind: int, line: Floats) -> None:
    """0 identity, 1 tanh, 2 relu, 3 sigmoid."""
    if kind == 1:
        for k in range(line.size):
            line[k] = tanh(line[k])
    elif kind == 2:
        for k in range(line.size):
            line[k] = max(line[k], np.float32(0.0))
    elif kind == 3:
        for k in range(line.size):
            line[k] = _HALF + _HALF * tanh(_HALF * line[k])


@compiled
def through_activation(kind: int, out: Floats, gradient: Floats) -> None:
    """The gradient of what went in, from that of what came out, in place."""
    if kind == 1:
        for k in range(out.size):
            gradient[k] *= _ONE - out[k] * out[k]
    elif kind == 2:
        for k in range(out.size):
            gradient[k] = gradient[k] if out[k] > 0 else np.float32(0.0)
    elif kind == 3:
        for k in range(out.size):
            gradient[k] *= out[k] * (_ONE - out[k])


@compiled
def dot(left: Floats, right: Floats) -> Any:
    total = np.float32(0.0)
    for k in range(left.size):
        total += left[k] * right[k]
    return total


@compiled
def add_scaled(target: Floats, scale: Any, source: Floats) -> None:
    for k in range(target.size):
        target[k] += scale * source[k]


@compiled
def to_unit_length(source: Floats, target: Floats) -> Any:
    """target = source / |source|; returns 1 / |source|, negative for a vector so short that it is only scaled."""
    squares = dot(source, source)
    short = squares <= _SMALLEST
    inverse = _LARGEST_INVERSE if short else _ONE / np.sqrt(squares)
    for k in range(source.size):
        target[k] = source[k] * inverse
    return -inverse if short else inverse


@compiled
def through_unit_length(unit: Floats, inverse: Any, gradient: Floats) -> None:
    """The gradient of the vector from that of its unit form, in place."""
    if inverse < 0:
        for k in range(unit.size):
            gradient[k] *= -inverse
        return
    along = dot(unit, gradient)
    for k in range(unit.size):
        gradient[k] = inverse * (gradient[k] - along * unit[k])


@compiled
def add_product(target: Floats, scale: Any, left: Floats, right: Floats) -> None:
    for k in range(target.size):
        target[k] += scale * left[k] * right[k]


@compiled
def add_four(target: Floats, scales: Floats, one: Floats, two: Floats, three: Floats, four: Floats) -> None:
    a, b, c, d = scales[0], scales[1], scales[2], scales[3]
    for k in range(target.size):
        target[k] += a * one[k] + b * two[k] + c * three[k] + d * four[k]


@compiled
def four_dots(line: Floats, others: Floats, at: int) -> Any:
    """The products of a line with the four rows from `at` on."""
    one, two, three, four = others[at], others[at + 1], others[at + 2], others[at + 3]
    a, b, c, d = np.float32(0.0), np.float32(0.0), np.float32(0.0), np.float32(0.0)
    for k in range(line.size):
        x = line[k]
        a += x * one[k]
        b += x * two[k]
        c += x * three[k]
        d += x * four[k]
    return a, b, c, d
