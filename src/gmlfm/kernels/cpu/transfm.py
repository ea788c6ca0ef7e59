r"""TransFM's groups, forward and backward.

.. math:: \sum_{i<j} \|a_i - v_j\|^2 \, x_i x_j, \quad a_i = v_i + t_i

Pairs within a side one by one; pairs across by sums, since every user attribute comes before every item attribute: x-weighted
sums of |a|^2, of 1 and of a on the user side, of 1, |v|^2 and v on the item side. These sums are of points less an origin, the
v of the user's first attribute, so that what all points have in common does not take the digits of their squares; no distance
depends on it. A side is a pair of slots and values: slots[place, g] with values xs[group, g].
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gmlfm.kernels.cpu.arrays import Floats
from gmlfm.kernels.cpu.jit import compiled
from gmlfm.kernels.cpu.maths import add_scaled, clear, dot
from gmlfm.kernels.cpu.sums_arrays import GroupSums

_ZERO, _TWO = np.float32(0.0), np.float32(2.0)


@compiled
def score_group(k: int, bias: Any, user: Any, item: Any, place: int, group: int, values: Floats, state: GroupSums) -> Any:
    """Returns the user side's sum of x, which the way back needs."""
    sums, squares, amounts, scores, origin = state.sums, state.squares, state.amounts, state.scores, state.origin
    clear(origin, 0)
    if user[0].shape[2] > 0:
        for d in range(k):
            origin[0, d] = values[user[0][place, 0, 0], 1 + d]
    user_terms, user_squares, user_amount = side(k, user, place, group, 0, values, origin, sums, 0, True)
    for g in range(scores.size):
        item_terms, squares[g], amounts[g] = side(k, item, place, group, g, values, origin, sums, 1 + g, False)
        across = user_squares * amounts[g] + user_amount * squares[g] - _TWO * dot(sums, 0, sums, 1 + g)
        scores[g] = bias + user_terms + item_terms + across
    return user_amount


@compiled
def group_back(
    k: int, scale: Any, user_amount: Any, user: Any, item: Any, place: int, group: int, values: Floats, state: GroupSums,
    row_grads: Floats,
) -> Any:  # fmt: skip
    """Adds the gradients of the rows; returns that at the global bias."""
    sums, sum_grads, amounts, score_grads, origin = (
        state.sums,
        state.sum_grads,
        state.amounts,
        state.score_grads,
        state.origin,
    )
    grad_sum, squares_grad = _ZERO, _ZERO
    clear(sum_grads, 0)
    for g in range(score_grads.size):
        score_grad = score_grads[g] * scale
        grad_sum += score_grad
        squares_grad += score_grad * amounts[g]
        add_scaled(sum_grads, 0, -_TWO * score_grad, sums, 1 + g)
        clear(sum_grads, 1 + g)
        add_scaled(sum_grads, 1 + g, -_TWO * score_grad, sums, 0)
        side_back(
            k, score_grad, score_grad * user_amount, sum_grads, 1 + g, item, place, group, g, values, origin, row_grads, False
        )
    side_back(k, grad_sum, squares_grad, sum_grads, 0, user, place, group, 0, values, origin, row_grads, True)
    return grad_sum


@compiled
def side(
    k: int, attributes: Any, place: int, group: int, g: int, values: Floats, origin: Floats, sums: Floats, row: int,
    is_user: bool,
) -> Any:  # fmt: skip
    """A side's linear and within terms, and its sums: of x |.|^2, of x, and in a row of `sums` of x times the points.

    The points are the a of a user, the v of an item, less the origin.
    """
    slots, xs = attributes
    clear(sums, row)
    terms, squares, amount = _ZERO, _ZERO, _ZERO
    for j in range(xs.shape[2]):
        x, slot = xs[group, g, j], slots[place, g, j]
        if x == 0:
            continue
        terms += x * values[slot, 0]
        amount += x
        square = _ZERO
        for d in range(k):
            point = values[slot, 1 + d] - origin[0, d]
            if is_user:
                point += values[slot, 1 + k + d]
            square += point * point
            sums[row, d] += x * point
        squares += x * square
        for i in range(j):
            other = slots[place, g, i]
            if xs[group, g, i] != 0:
                distance = _ZERO
                for d in range(k):
                    off = values[other, 1 + d] + values[other, 1 + k + d] - values[slot, 1 + d]
                    distance += off * off
                terms += xs[group, g, i] * x * distance
    return terms, squares, amount


@compiled
def side_back(
    k: int, score_grad: Any, squares_grad: Any, sum_grads: Floats, row: int, attributes: Any, place: int, group: int, g: int,
    values: Floats, origin: Floats, row_grads: Floats, is_user: bool,
) -> None:  # fmt: skip
    """squares_grad, a row of sum_grads: the gradients at the side's sums of x |.|^2 and of x times the points."""
    slots, xs = attributes
    for j in range(xs.shape[2]):
        x, slot = xs[group, g, j], slots[place, g, j]
        if x == 0:
            continue
        row_grads[slot, 0] += score_grad * x
        for d in range(k):
            point = values[slot, 1 + d] - origin[0, d]
            if is_user:
                point += values[slot, 1 + k + d]
            change = x * (_TWO * squares_grad * point + sum_grads[row, d])
            row_grads[slot, 1 + d] += change
            if is_user:
                row_grads[slot, 1 + k + d] += change
        for i in range(j):
            other = slots[place, g, i]
            if xs[group, g, i] != 0:
                twice = _TWO * score_grad * xs[group, g, i] * x
                for d in range(k):
                    change = twice * (values[other, 1 + d] + values[other, 1 + k + d] - values[slot, 1 + d])
                    row_grads[other, 1 + d] += change
                    row_grads[other, 1 + k + d] += change
                    row_grads[slot, 1 + d] -= change
