"""GML-FM's pairs within a side, which is slots[place, g] with values xs[group, g], n attributes: forward and backward."""

from __future__ import annotations

from typing import Any

import numpy as np

from gmlfm.kernels.cpu.arrays import Floats, Ints
from gmlfm.kernels.cpu.jit import compiled
from gmlfm.kernels.cpu.maths import add_difference, add_scaled, dot
from gmlfm.kernels.cpu.pairs_transform import PairsShape

_ZERO, _ONE, _TWO = np.float32(0.0), np.float32(1.0), np.float32(2.0)


@compiled
def within(
    shape: PairsShape, base: Any, gate: Any, slots: Ints, place: int, g: int, xs: Floats, group: int, n: int, h: Floats,
    v: Floats, z: Floats,
) -> Any:  # fmt: skip
    """The sum over the pairs, each its weight times base + gate times its distance or cosine."""
    total = _ZERO
    for i in range(1, n):
        x, slot = xs[group, g, i], slots[place, g, i]
        if x == 0:
            continue
        for j in range(i):
            if xs[group, g, j] != 0:
                weight, distance = weight_and_distance(shape, slot, slots[place, g, j], h, v, z)
                total += x * xs[group, g, j] * weight * (base + gate * distance)
    return total


@compiled
def within_back(
    shape: PairsShape, base: Any, gate: Any, score_grad: Any, slots: Ints, place: int, g: int, xs: Floats, group: int, n: int,
    h: Floats, v: Floats, z: Floats, v_grads: Floats, z_grads: Floats, h_grad: Floats,
) -> Any:  # fmt: skip
    """Returns the gradient at the gate."""
    gate_grad = _ZERO
    for i in range(1, n):
        x, slot = xs[group, g, i], slots[place, g, i]
        if x == 0:
            continue
        for j in range(i):
            if xs[group, g, j] == 0:
                continue
            other = slots[place, g, j]
            weight, distance = weight_and_distance(shape, slot, other, h, v, z)
            pair_grad = score_grad * x * xs[group, g, j]
            by_weight = pair_grad * (base + gate * distance)
            by_product = pair_grad * weight * (gate if shape.cosine else -_TWO)
            gate_grad += pair_grad * weight * distance
            for k in range(shape.k):
                v_grads[slot, k] += by_weight * h[k] * v[other, k]
            for k in range(shape.k):
                v_grads[other, k] += by_weight * h[k] * v[slot, k]
            for k in range(shape.k):
                h_grad[k] += by_weight * v[slot, k] * v[other, k]
            if shape.cosine:
                add_scaled(z_grads, slot, by_product, z, other)
                add_scaled(z_grads, other, by_product, z, slot)
            else:
                add_difference(z_grads, slot, by_product, z, other, slot)
                add_difference(z_grads, other, by_product, z, slot, other)
    return gate_grad


@compiled
def weight_and_distance(shape: PairsShape, slot: int, other: int, h: Floats, v: Floats, z: Floats) -> Any:
    """h^T (v_i * v_j) and D(z_i, z_j)."""
    weight, distance = _ZERO, _ZERO
    for k in range(shape.k):
        weight += h[k] * v[slot, k] * v[other, k]
    if shape.cosine:
        distance = dot(z, slot, z, other)
    else:
        for k in range(shape.rank):
            off = z[slot, k] - z[other, k]
            distance += off * off
    return weight, distance
