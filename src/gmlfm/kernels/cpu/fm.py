r"""The factorization machine's groups, forward and backward, by sums: O(FK) an instance.

With s the sum of a side's x v, the pairs within it are (|s|^2 - \sum |x v|^2) / 2 and those across are s_u . s_i.
A side is a pair of slots and values: slots[place, g] with values xs[group, g].
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gmlfm.kernels.cpu.arrays import Floats
from gmlfm.kernels.cpu.jit import compiled
from gmlfm.kernels.cpu.maths import add_scaled, clear, dot
from gmlfm.kernels.cpu.sums_arrays import GroupSums

_ZERO, _HALF, _TWO = np.float32(0.0), np.float32(0.5), np.float32(2.0)


@compiled
def score_group(
    linear: bool, bias: Any, user: Any, item: Any, place: int, group: int, values: Floats, state: GroupSums
) -> None:
    sums, scores = state.sums, state.scores
    user_terms = bias + side(linear, user, place, group, 0, values, sums, 0)
    for g in range(scores.size):
        item_terms = side(linear, item, place, group, g, values, sums, 1 + g)
        scores[g] = user_terms + item_terms + dot(sums, 0, sums, 1 + g)


@compiled
def group_back(
    linear: bool, user_l2: Any, item_l2: Any, loss: Any, scale: Any, user: Any, item: Any, place: int, group: int,
    values: Floats, state: GroupSums, row_grads: Floats,
) -> Any:  # fmt: skip
    """Adds the gradients of the rows; returns the loss with the L2 added, and the gradient at the global bias."""
    sums, sum_grads, score_grads = state.sums, state.sum_grads, state.score_grads
    grad_sum = _ZERO
    for g in range(score_grads.size):
        score_grads[g] *= scale
        grad_sum += score_grads[g]
    clear(sum_grads, 0)
    add_scaled(sum_grads, 0, grad_sum, sums, 0)
    for g in range(score_grads.size):
        add_scaled(sum_grads, 0, score_grads[g], sums, 1 + g)
        for d in range(sums.shape[1]):
            sum_grads[1 + g, d] = score_grads[g] * (sums[1 + g, d] + sums[0, d])
        loss += side_back(linear, score_grads[g], item_l2, item, place, group, g, values, sum_grads, 1 + g, row_grads)
    loss += side_back(linear, grad_sum, user_l2, user, place, group, 0, values, sum_grads, 0, row_grads)
    return loss, grad_sum


@compiled
def side(linear: bool, attributes: Any, place: int, group: int, g: int, values: Floats, sums: Floats, i: int) -> Any:
    """A side's linear and within terms; row i of the sums becomes that of its x v."""
    slots, xs = attributes
    clear(sums, i)
    terms = _ZERO
    for f in range(xs.shape[2]):
        x, slot = xs[group, g, f], slots[place, g, f]
        if x != 0:
            if linear:
                terms += x * values[slot, 0]
            squares = _ZERO
            for d in range(sums.shape[1]):
                factor = x * values[slot, 1 + d]
                sums[i, d] += factor
                squares += factor * factor
            terms -= _HALF * squares
    return terms + _HALF * dot(sums, i, sums, i)


@compiled
def side_back(
    linear: bool, score_grad: Any, l2: Any, attributes: Any, place: int, group: int, g: int, values: Floats,
    sum_grads: Floats, i: int, row_grads: Floats,
) -> Any:  # fmt: skip
    """Row i of sum_grads: the gradient at the side's sum. Returns what the L2 of these factors adds to the loss."""
    slots, xs = attributes
    penalty = _ZERO
    for f in range(xs.shape[2]):
        x, slot = xs[group, g, f], slots[place, g, f]
        if x != 0:
            if linear:
                row_grads[slot, 0] += score_grad * x
            factor_scale = _TWO * l2 - score_grad * x * x
            squares = _ZERO
            for d in range(sum_grads.shape[1]):
                factor = values[slot, 1 + d]
                row_grads[slot, 1 + d] += x * sum_grads[i, d] + factor_scale * factor
                squares += factor * factor
            penalty += l2 * squares
    return penalty
