r"""TransFM's groups, forward and backward.

.. math:: \sum_{i<j} \|a_i - v_j\|^2 \, x_i x_j, \quad a_i = v_i + t_i

Pairs within a side one by one; pairs across by sums, since every attribute of the user comes before every one of the item:
x-weighted sums of |a|^2, of 1 and of a on her side, of 1, |v|^2 and v on its side.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gmlfm.kernels.cpu.arrays import Floats, Groups, Ints, Rule
from gmlfm.kernels.cpu.jit import compiled
from gmlfm.kernels.cpu.losses import group_loss
from gmlfm.kernels.cpu.maths import add_scaled, dot

_ZERO, _ONE, _TWO = np.float32(0.0), np.float32(1.0), np.float32(2.0)


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
    asking: Ints,
    answering: Ints,
    gradients: Floats,
) -> Any:
    """The groups begin to end, counted from start: their loss, and its slope at the global bias; those at rows are added up."""
    size = groups.labels.shape[1]
    starts, starts_back = np.empty(k, np.float32), np.empty(k, np.float32)
    ends, ends_back = np.empty((size, k), np.float32), np.empty(k, np.float32)
    squares, amounts = np.empty(size, np.float32), np.empty(size, np.float32)
    scores, slopes = np.empty(size, np.float32), np.empty(size, np.float32)
    total, slope_total = _ZERO, _ZERO
    for at in range(begin, end):
        here = start + at
        own, user_squares, user_amount = side(k, asking[at], groups.asking_x[here], values, starts, True)
        for g in range(size):
            item, squares[g], amounts[g] = side(k, answering[at, g], groups.answering_x[here, g], values, ends[g], False)
            across = user_squares * amounts[g] + user_amount * squares[g] - _TWO * dot(starts, ends[g])
            scores[g] = bias + own + item + across
        scale = share * groups.weights[here] if groups.weights.size else share
        total += scale * group_loss(rule.objective, scores, groups.labels[here], slopes)
        slope_sum, at_squares = _ZERO, _ZERO
        starts_back[:] = _ZERO
        for g in range(size):
            slope = slopes[g] * scale
            slope_sum += slope
            at_squares += slope * amounts[g]
            add_scaled(starts_back, -_TWO * slope, ends[g])
            ends_back[:] = _ZERO
            add_scaled(ends_back, -_TWO * slope, starts)
            side_back(
                k,
                slope,
                slope * user_amount,
                ends_back,
                answering[at, g],
                groups.answering_x[here, g],
                values,
                gradients,
                False,
            )
        side_back(k, slope_sum, at_squares, starts_back, asking[at], groups.asking_x[here], values, gradients, True)
        slope_total += slope_sum
    return total, slope_total


@compiled
def side(k: int, slots: Ints, x: Floats, values: Floats, together: Floats, starting: bool) -> Any:
    """A side's linear and within terms, and its sums: of x |.|^2, of x, and together of x times the points.

    starting: the points are the a; otherwise the v.
    """
    together[:] = _ZERO
    own, squares, amount = _ZERO, _ZERO, _ZERO
    for j in range(slots.size):
        if x[j] == 0:
            continue
        row = values[slots[j]]
        own += x[j] * row[0]
        amount += x[j]
        square = _ZERO
        for d in range(k):
            point = row[1 + d] + row[1 + k + d] if starting else row[1 + d]
            square += point * point
            together[d] += x[j] * point
        squares += x[j] * square
        for i in range(j):
            if x[i] != 0:
                other, apart = values[slots[i]], _ZERO
                for d in range(k):
                    off = other[1 + d] + other[1 + k + d] - row[1 + d]
                    apart += off * off
                own += x[i] * x[j] * apart
    return own, squares, amount


@compiled
def side_back(
    k: int, slope: Any, at_squares: Any, back: Floats, slots: Ints, x: Floats, values: Floats, gradients: Floats, starting: bool
) -> None:
    """at_squares, back: the slopes at the side's sums of x |.|^2 and of x times the points."""
    for j in range(slots.size):
        if x[j] == 0:
            continue
        row, gradient = values[slots[j]], gradients[slots[j]]
        gradient[0] += slope * x[j]
        for d in range(k):
            point = row[1 + d] + row[1 + k + d] if starting else row[1 + d]
            change = x[j] * (_TWO * at_squares * point + back[d])
            gradient[1 + d] += change
            if starting:
                gradient[1 + k + d] += change
        for i in range(j):
            if x[i] != 0:
                other, other_gradient = values[slots[i]], gradients[slots[i]]
                twice = _TWO * slope * x[i] * x[j]
                for d in range(k):
                    change = twice * (other[1 + d] + other[1 + k + d] - row[1 + d])
                    other_gradient[1 + d] += change
                    other_gradient[1 + k + d] += change
                    gradient[1 + d] -= change
