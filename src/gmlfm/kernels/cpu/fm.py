r"""The factorization machine's groups, forward and backward, by sums: O(FK) an instance.

With s the sum of a side's x v, the pairs within it are (|s|^2 - \sum |x v|^2) / 2 and those across are s_u . s_i.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gmlfm.kernels.cpu.arrays import Floats, Groups, Ints, Rule
from gmlfm.kernels.cpu.jit import compiled
from gmlfm.kernels.cpu.losses import group_loss
from gmlfm.kernels.cpu.maths import add_scaled, dot

_ZERO, _HALF, _TWO = np.float32(0.0), np.float32(0.5), np.float32(2.0)


@compiled
def walk_fm(
    k: int,
    biased: bool,
    user_decay: Any,
    item_decay: Any,
    rule: Rule,
    groups: Groups,
    share: Any,
    start: int,
    begin: int,
    end: int,
    bias: Any,
    values: Floats,
    asking: Ints,
    answering: Ints,
    gradients: Floats,
) -> Any:
    """The groups begin to end, counted from start: their loss, and its slope at the global bias; those at rows are added up."""
    size = groups.labels.shape[1]
    user, back = np.empty(k, np.float32), np.empty(k, np.float32)
    items = np.empty((size, k), np.float32)
    scores, slopes = np.empty(size, np.float32), np.empty(size, np.float32)
    total, slope_total = _ZERO, _ZERO
    for at in range(begin, end):
        here = start + at
        own = bias + side(biased, asking[at], groups.asking_x[here], values, user)
        for g in range(size):
            scores[g] = own + side(biased, answering[at, g], groups.answering_x[here, g], values, items[g])
            scores[g] += dot(user, items[g])
        scale = share * groups.weights[here] if groups.weights.size else share
        total += scale * group_loss(rule.objective, scores, groups.labels[here], slopes)
        slope_sum = _ZERO
        for g in range(size):
            slope_sum += slopes[g] * scale
        back[:] = _ZERO
        add_scaled(back, slope_sum, user)
        for g in range(size):
            slope = slopes[g] * scale
            add_scaled(back, slope, items[g])
            for d in range(k):
                items[g, d] = slope * (items[g, d] + user[d])
            total += side_back(
                biased, slope, item_decay, answering[at, g], groups.answering_x[here, g], values, items[g], gradients
            )
        total += side_back(biased, slope_sum, user_decay, asking[at], groups.asking_x[here], values, back, gradients)
        slope_total += slope_sum
    return total, slope_total


@compiled
def side(biased: bool, slots: Ints, x: Floats, values: Floats, together: Floats) -> Any:
    """A side's linear and within terms; together becomes the sum of its x v."""
    together[:] = _ZERO
    own = _ZERO
    for f in range(slots.size):
        if x[f] != 0:
            row = values[slots[f]]
            if biased:
                own += x[f] * row[0]
            own -= _HALF * x[f] * x[f] * dot(row[1:], row[1:])
            add_scaled(together, x[f], row[1:])
    return own + _HALF * dot(together, together)


@compiled
def side_back(
    biased: bool, slope: Any, decay: Any, slots: Ints, x: Floats, values: Floats, back: Floats, gradients: Floats
) -> Any:
    """back: the slope at the side's sum. Returns what the L2 of these factors adds to the loss."""
    penalty = _ZERO
    for f in range(slots.size):
        if x[f] != 0:
            gradient, row = gradients[slots[f]], values[slots[f]]
            if biased:
                gradient[0] += slope * x[f]
            add_scaled(gradient[1:], x[f], back)
            add_scaled(gradient[1:], _TWO * decay - slope * x[f] * x[f], row[1:])
            if decay > 0:
                penalty += decay * dot(row[1:], row[1:])
    return penalty
