"""From rows of the table to z: gathered by slot, through the layers, to unit length."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _activated(y, ACTIVATION: tl.constexpr):
    if ACTIVATION == 1:
        # tanh by exp, exact at both ends.
        small = tl.exp(-2.0 * tl.abs(y))
        size = (1.0 - small) / (1.0 + small)
        return tl.where(y >= 0, size, -size)
    if ACTIVATION == 2:
        return tl.maximum(y, 0.0)
    if ACTIVATION == 3:
        return tl.sigmoid(y)
    return y


@triton.jit
def through(gradient, out, ACTIVATION: tl.constexpr):
    if ACTIVATION == 1:
        return gradient * (1.0 - out * out)
    if ACTIVATION == 2:
        return tl.where(out > 0, gradient, 0.0)
    if ACTIVATION == 3:
        return gradient * out * (1.0 - out)
    return gradient


@triton.jit
def gather_rows(step, first_slot, rows, table, values, weights, K: tl.constexpr, WIDE: tl.constexpr, EACH: tl.constexpr):
    """v (U, K) and w (U,) of the step's distinct rows; beyond them zeros."""
    s = tl.load(step)
    begin, end = tl.load(first_slot + s), tl.load(first_slot + s + 1)
    slots, ks = tl.program_id(0) * EACH + tl.arange(0, EACH), tl.arange(0, WIDE)
    there = begin + slots < end
    row = tl.load(rows + begin + slots, mask=there, other=0).to(tl.int64)
    tl.store(weights + slots, tl.load(table + row * (1 + K), mask=there, other=0.0))
    inside = (ks < K)[None, :]
    v = tl.load(table + row[:, None] * (1 + K) + 1 + ks[None, :], mask=there[:, None] & inside, other=0.0)
    tl.store(values + slots[:, None] * K + ks[None, :], v, mask=inside)


@triton.jit
def activate_rows(
    features,
    z,
    inverses,
    K: tl.constexpr,
    WIDE: tl.constexpr,
    EACH: tl.constexpr,
    ACTIVATION: tl.constexpr,
    LAST: tl.constexpr,
    UNIT: tl.constexpr,
):
    """The activation in place; after the last layer also z, at unit length where UNIT, with 1 / length."""
    slots, ks = tl.program_id(0) * EACH + tl.arange(0, EACH), tl.arange(0, WIDE)
    at, inside = slots[:, None] * K + ks[None, :], (ks < K)[None, :]
    y = _activated(tl.load(features + at, mask=inside, other=0.0), ACTIVATION)
    y = tl.where(inside, y, 0.0)
    tl.store(features + at, y, mask=inside)
    if LAST:
        if UNIT:
            squares = tl.sum(y * y, 1)
            short = squares <= 1e-12
            inverse = tl.where(short, 1e6, 1.0 / tl.sqrt(tl.maximum(squares, 1e-12)))
            # A negative sign marks a vector so short that it is only scaled.
            tl.store(inverses + slots, tl.where(short, -inverse, inverse))
            y = y * inverse[:, None]
        tl.store(z + at, y, mask=inside)


@triton.jit
def transform_rows(
    step,
    first_slot,
    rows,
    table,
    line,
    values,
    weights,
    features,
    z,
    inverses,
    K: tl.constexpr,
    WIDE: tl.constexpr,
    EACH: tl.constexpr,
    ACTIVATION: tl.constexpr,
    BIASED: tl.constexpr,
    UNIT: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """gather_rows, one layer and activate_rows in one, where the layer's matrix fits a program."""
    s = tl.load(step)
    begin, end = tl.load(first_slot + s), tl.load(first_slot + s + 1)
    slots, ks = tl.program_id(0) * EACH + tl.arange(0, EACH), tl.arange(0, WIDE)
    there, inside = begin + slots < end, (ks < K)[None, :]
    row = tl.load(rows + begin + slots, mask=there, other=0).to(tl.int64)
    at = slots[:, None] * K + ks[None, :]
    tl.store(weights + slots, tl.load(table + row * (1 + K), mask=there, other=0.0))
    v = tl.load(table + row[:, None] * (1 + K) + 1 + ks[None, :], mask=there[:, None] & inside, other=0.0)
    tl.store(values + at, v, mask=inside)
    matrix = tl.load(line + 1 + K + ks[:, None] * K + ks[None, :], mask=(ks < K)[:, None] & inside, other=0.0)
    y = tl.dot(v, tl.trans(matrix), input_precision=PRECISION)
    if BIASED:
        y += tl.load(line + 1 + K + K * K + ks, mask=ks < K, other=0.0)[None, :]
    y = tl.where(inside, _activated(y, ACTIVATION), 0.0)
    tl.store(features + at, y, mask=inside)
    if UNIT:
        squares = tl.sum(y * y, 1)
        short = squares <= 1e-12
        inverse = tl.where(short, 1e6, 1.0 / tl.sqrt(tl.maximum(squares, 1e-12)))
        tl.store(inverses + slots, tl.where(short, -inverse, inverse))
        y = y * inverse[:, None]
    tl.store(z + at, y, mask=inside)


@triton.jit
def through_layer(gradient, out, N, BLOCK: tl.constexpr, ACTIVATION: tl.constexpr):
    """Between two layers, on the way back, in place."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < N
    found = through(tl.load(gradient + at, mask=inside, other=0.0), tl.load(out + at, mask=inside, other=0.0), ACTIVATION)
    tl.store(gradient + at, found, mask=inside)
