r"""The factorization machine's groups, forward and backward, by sums: O(FK) an instance.

With s the sum of a side's x v, the pairs within it are (|s|^2 - \sum |x v|^2) / 2 and those across are s_u . s_i.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gmlfm.kernels.cpu.arrays import Floats, Groups, Ints, Rule
from gmlfm.kernels.cpu.jit import compiled, inlined
from gmlfm.kernels.cpu.losses import group_loss
from gmlfm.kernels.cpu.maths import add_scaled, clear, dot

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
    user_side: Ints,
    item_side: Ints,
    gradients: Floats,
) -> Any:
    """The groups begin to end, counted from start: their loss, and its slope at the global bias; those at rows are added up."""
    size, user_width, item_width = groups.labels.shape[1], groups.user_x.shape[1], groups.item_x.shape[2]
    user_x = groups.user_x.reshape(-1, 1, user_width)
    of_user_side = user_side.reshape(-1, 1, user_width)
    # Row 0 is the user's, then the items'; of each the sum of x v, and the slope at it.
    sums, back = np.empty((1 + size, k), np.float32), np.empty((1 + size, k), np.float32)
    scores, slopes = np.empty(size, np.float32), np.empty(size, np.float32)
    total, slope_total = _ZERO, _ZERO
    for at in range(begin, end):
        here = start + at
        own = bias + side(biased, of_user_side, at, 0, user_x, here, user_width, values, sums, 0)
        for g in range(size):
            item = side(biased, item_side, at, g, groups.item_x, here, item_width, values, sums, 1 + g)
            scores[g] = own + item + dot(sums, 0, sums, 1 + g)
        scale = share * groups.weights[here] if groups.weights.size else share
        total += scale * group_loss(rule.objective, scores, groups.labels, here, slopes)
        slope_sum = _ZERO
        for g in range(size):
            slopes[g] *= scale
            slope_sum += slopes[g]
        clear(back, 0)
        add_scaled(back, 0, slope_sum, sums, 0)
        for g in range(size):
            add_scaled(back, 0, slopes[g], sums, 1 + g)
            for d in range(k):
                back[1 + g, d] = slopes[g] * (sums[1 + g, d] + sums[0, d])
            total += side_back(
                biased, slopes[g], item_decay, item_side, at, g, groups.item_x, here, item_width, values, back, 1 + g,
                gradients,
            )  # fmt: skip
        total += side_back(
            biased, slope_sum, user_decay, of_user_side, at, 0, user_x, here, user_width, values, back, 0, gradients
        )
        slope_total += slope_sum
    return total, slope_total


@inlined
def side(
    biased: bool,
    slots: Ints,
    at: int,
    g: int,
    xs: Floats,
    here: int,
    n: int,
    values: Floats,
    sums: Floats,
    to: int,
) -> Any:
    """A side's linear and within terms; row `to` of the sums becomes that of its x v."""
    clear(sums, to)
    own = _ZERO
    for f in range(n):
        x, slot = xs[here, g, f], slots[at, g, f]
        if x != 0:
            if biased:
                own += x * values[slot, 0]
            squares = _ZERO
            for d in range(sums.shape[1]):
                one = x * values[slot, 1 + d]
                sums[to, d] += one
                squares += one * one
            own -= _HALF * squares
    return own + _HALF * dot(sums, to, sums, to)


@inlined
def side_back(
    biased: bool,
    slope: Any,
    decay: Any,
    slots: Ints,
    at: int,
    g: int,
    xs: Floats,
    here: int,
    n: int,
    values: Floats,
    back: Floats,
    of: int,
    gradients: Floats,
) -> Any:
    """Row `of` of back: the slope at the side's sum. Returns what the L2 of these factors adds to the loss."""
    penalty = _ZERO
    for f in range(n):
        x, slot = xs[here, g, f], slots[at, g, f]
        if x != 0:
            if biased:
                gradients[slot, 0] += slope * x
            less = _TWO * decay - slope * x * x
            squares = _ZERO
            for d in range(back.shape[1]):
                one = values[slot, 1 + d]
                gradients[slot, 1 + d] += x * back[of, d] + less * one
                squares += one * one
            penalty += decay * squares
    return penalty
