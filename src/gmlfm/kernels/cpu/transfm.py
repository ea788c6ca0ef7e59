r"""TransFM's groups, forward and backward.

.. math:: \sum_{i<j} \|a_i - v_j\|^2 \, x_i x_j, \quad a_i = v_i + t_i

Pairs within a side one by one; pairs across by sums, since every attribute of the user comes before every one of the item:
x-weighted sums of |a|^2, of 1 and of a on her side, of 1, |v|^2 and v on its side.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gmlfm.kernels.cpu.arrays import Floats, Groups, Ints, Rule
from gmlfm.kernels.cpu.jit import compiled, inlined
from gmlfm.kernels.cpu.losses import group_loss
from gmlfm.kernels.cpu.maths import add_scaled, clear, dot

_ZERO, _TWO = np.float32(0.0), np.float32(2.0)


@compiled
def walk_transfm(
    k: int,
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
    # Row 0 is the user's, then the items': sums of x times the points, and the slopes at them.
    sums, back = np.empty((1 + size, k), np.float32), np.empty((1 + size, k), np.float32)
    squares, amounts = np.empty(size, np.float32), np.empty(size, np.float32)
    scores, slopes = np.empty(size, np.float32), np.empty(size, np.float32)
    total, slope_total = _ZERO, _ZERO
    for at in range(begin, end):
        here = start + at
        own, user_squares, user_amount = side(k, of_user_side, at, 0, user_x, here, user_width, values, sums, 0, True)
        for g in range(size):
            item, squares[g], amounts[g] = side(
                k, item_side, at, g, groups.item_x, here, item_width, values, sums, 1 + g, False
            )
            across = user_squares * amounts[g] + user_amount * squares[g] - _TWO * dot(sums, 0, sums, 1 + g)
            scores[g] = bias + own + item + across
        scale = share * groups.weights[here] if groups.weights.size else share
        total += scale * group_loss(rule.objective, scores, groups.labels, here, slopes)
        slope_sum, at_squares = _ZERO, _ZERO
        clear(back, 0)
        for g in range(size):
            slope = slopes[g] * scale
            slope_sum += slope
            at_squares += slope * amounts[g]
            add_scaled(back, 0, -_TWO * slope, sums, 1 + g)
            clear(back, 1 + g)
            add_scaled(back, 1 + g, -_TWO * slope, sums, 0)
            side_back(
                k, slope, slope * user_amount, back, 1 + g, item_side, at, g, groups.item_x, here, item_width, values,
                gradients, False,
            )  # fmt: skip
        side_back(k, slope_sum, at_squares, back, 0, of_user_side, at, 0, user_x, here, user_width, values, gradients, True)
        slope_total += slope_sum
    return total, slope_total


@inlined
def side(
    k: int,
    slots: Ints,
    at: int,
    g: int,
    xs: Floats,
    here: int,
    n: int,
    values: Floats,
    sums: Floats,
    to: int,
    starting: bool,
) -> Any:
    """A side's linear and within terms, and its sums: of x |.|^2, of x, and in row `to` of x times the points.

    starting: the points are the a; otherwise the v.
    """
    clear(sums, to)
    own, squares, amount = _ZERO, _ZERO, _ZERO
    for j in range(n):
        x, slot = xs[here, g, j], slots[at, g, j]
        if x == 0:
            continue
        own += x * values[slot, 0]
        amount += x
        square = _ZERO
        for d in range(k):
            point = values[slot, 1 + d] + values[slot, 1 + k + d] if starting else values[slot, 1 + d]
            square += point * point
            sums[to, d] += x * point
        squares += x * square
        for i in range(j):
            other = slots[at, g, i]
            if xs[here, g, i] != 0:
                apart = _ZERO
                for d in range(k):
                    off = values[other, 1 + d] + values[other, 1 + k + d] - values[slot, 1 + d]
                    apart += off * off
                own += xs[here, g, i] * x * apart
    return own, squares, amount


@inlined
def side_back(
    k: int,
    slope: Any,
    at_squares: Any,
    back: Floats,
    of: int,
    slots: Ints,
    at: int,
    g: int,
    xs: Floats,
    here: int,
    n: int,
    values: Floats,
    gradients: Floats,
    starting: bool,
) -> None:
    """at_squares, row `of` of back: the slopes at the side's sums of x |.|^2 and of x times the points."""
    for j in range(n):
        x, slot = xs[here, g, j], slots[at, g, j]
        if x == 0:
            continue
        gradients[slot, 0] += slope * x
        for d in range(k):
            point = values[slot, 1 + d] + values[slot, 1 + k + d] if starting else values[slot, 1 + d]
            change = x * (_TWO * at_squares * point + back[of, d])
            gradients[slot, 1 + d] += change
            if starting:
                gradients[slot, 1 + k + d] += change
        for i in range(j):
            other = slots[at, g, i]
            if xs[here, g, i] != 0:
                twice = _TWO * slope * xs[here, g, i] * x
                for d in range(k):
                    change = twice * (values[other, 1 + d] + values[other, 1 + k + d] - values[slot, 1 + d])
                    gradients[other, 1 + d] += change
                    gradients[other, 1 + k + d] += change
                    gradients[slot, 1 + d] -= change
