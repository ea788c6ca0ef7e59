"""From rows of the table to z: gathered by slot, through the layers, to unit length."""

from __future__ import annotations

import triton
import triton.language as tl

from gmlfm.kernels import codes

_TANH, _RELU, _SIGMOID = tl.constexpr(codes.TANH), tl.constexpr(codes.RELU), tl.constexpr(codes.SIGMOID)


@triton.jit
def _activated(y, ACTIVATION: tl.constexpr):
    if ACTIVATION == _TANH:
        # tanh by exp, exact at both ends.
        small = tl.exp(-2.0 * tl.abs(y))
        size = (1.0 - small) / (1.0 + small)
        return tl.where(y >= 0, size, -size)
    if ACTIVATION == _RELU:
        return tl.maximum(y, 0.0)
    if ACTIVATION == _SIGMOID:
        return tl.sigmoid(y)
    return y


@triton.jit
def through(gradient, out, ACTIVATION: tl.constexpr):
    """The gradient at what went into an activation, from that at what came out."""
    if ACTIVATION == _TANH:
        return gradient * (1.0 - out * out)
    if ACTIVATION == _RELU:
        return tl.where(out > 0, gradient, 0.0)
    if ACTIVATION == _SIGMOID:
        return gradient * out * (1.0 - out)
    return gradient


@triton.jit
def _store_z(y, z, inverses, slots, places, inside, UNIT: tl.constexpr):
    """z = y, at unit length where UNIT, with 1 / length."""
    if UNIT:
        squares = tl.sum(y * y, 1)
        short = squares <= 1e-12
        inverse = tl.where(short, 1e6, 1.0 / tl.sqrt(tl.maximum(squares, 1e-12)))
        # A negative sign marks a vector so short that it is only scaled.
        tl.store(inverses + slots, tl.where(short, -inverse, inverse))
        y = y * inverse[:, None]
    tl.store(z + places, y, mask=inside)


@triton.jit
def _gather(
    step, first_slot, rows, table, values, weights, slots, ks, K: tl.constexpr
):  # fmt: skip
    """v (EACH, K) of some slots, stored in values with w in weights; zeros beyond the step's distinct rows."""
    s = tl.load(step)
    begin, end = tl.load(first_slot + s), tl.load(first_slot + s + 1)
    is_present, inside = begin + slots < end, (ks < K)[None, :]
    row = tl.load(rows + begin + slots, mask=is_present, other=0).to(tl.int64)
    tl.store(weights + slots, tl.load(table + row * (1 + K), mask=is_present, other=0.0))
    v = tl.load(table + row[:, None] * (1 + K) + 1 + ks[None, :], mask=is_present[:, None] & inside, other=0.0)
    tl.store(values + slots[:, None] * K + ks[None, :], v, mask=inside)
    return v


@triton.jit
def gather_rows(step, first_slot, rows, table, values, weights, K: tl.constexpr, WIDE: tl.constexpr, EACH: tl.constexpr):
    """v (U, K) and w (U,) of the step's distinct rows; beyond them zeros."""
    slots, ks = tl.program_id(0) * EACH + tl.arange(0, EACH), tl.arange(0, WIDE)
    _gather(step, first_slot, rows, table, values, weights, slots, ks, K)


@triton.jit
def activate_rows(
    features, z, inverses,
    K: tl.constexpr, WIDE: tl.constexpr, EACH: tl.constexpr, ACTIVATION: tl.constexpr, LAST: tl.constexpr, UNIT: tl.constexpr,
):  # fmt: skip
    """The activation in place; after the last layer also z."""
    slots, ks = tl.program_id(0) * EACH + tl.arange(0, EACH), tl.arange(0, WIDE)
    places, inside = slots[:, None] * K + ks[None, :], (ks < K)[None, :]
    y = _activated(tl.load(features + places, mask=inside, other=0.0), ACTIVATION)
    y = tl.where(inside, y, 0.0)
    tl.store(features + places, y, mask=inside)
    if LAST:
        _store_z(y, z, inverses, slots, places, inside, UNIT)


@triton.jit
def transform_rows(
    step, first_slot, rows, table, packed_params, values, weights, features, z, inverses,
    K: tl.constexpr, WIDE: tl.constexpr, EACH: tl.constexpr, ACTIVATION: tl.constexpr, HAS_BIASES: tl.constexpr,
    UNIT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """gather_rows, one layer and activate_rows in one, where the layer's matrix fits a program."""
    slots, ks = tl.program_id(0) * EACH + tl.arange(0, EACH), tl.arange(0, WIDE)
    places, inside = slots[:, None] * K + ks[None, :], (ks < K)[None, :]
    v = _gather(step, first_slot, rows, table, values, weights, slots, ks, K)
    matrix = tl.load(packed_params + 1 + K + ks[:, None] * K + ks[None, :], mask=(ks < K)[:, None] & inside, other=0.0)
    y = tl.dot(v, tl.trans(matrix), input_precision=PRECISION)
    if HAS_BIASES:
        y += tl.load(packed_params + 1 + K + K * K + ks, mask=ks < K, other=0.0)[None, :]
    y = tl.where(inside, _activated(y, ACTIVATION), 0.0)
    tl.store(features + places, y, mask=inside)
    _store_z(y, z, inverses, slots, places, inside, UNIT)


@triton.jit
def through_layer(gradient, out, N, BLOCK: tl.constexpr, ACTIVATION: tl.constexpr):
    """Between two layers, on the way back, in place."""
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < N
    y_grad, y = tl.load(gradient + places, mask=inside, other=0.0), tl.load(out + places, mask=inside, other=0.0)
    tl.store(gradient + places, through(y_grad, y, ACTIVATION), mask=inside)
