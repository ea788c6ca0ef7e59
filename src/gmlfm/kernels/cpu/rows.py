"""Rows in and out: the distinct rows of a step get slots, and optimisers write them back. The twin of gmlfm.training.rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from gmlfm.kernels.codes import ADAGRAD, ADAM, SGD
from gmlfm.kernels.cpu.arrays import Dense, Floats, Groups, Ints, Rows, Rule
from gmlfm.kernels.cpu.jit import compiled

_ONE = np.float32(1.0)
_BETA_1, _NEW_1 = np.float32(0.9), np.float32(0.1)
_BETA_2, _NEW_2 = np.float32(0.999), np.float32(0.001)
_ADAM_EPSILON, _ADAGRAD_EPSILON = np.float32(1e-8), np.float32(1e-10)


@compiled
def assign_slots(groups: Groups, start: int, stop: int, slot: Ints, rows: Ints, user_slots: Ints, item_slots: Ints) -> int:
    """Number the distinct rows of the groups start to stop; rows: slot -> row; user_slots, item_slots: of each attribute."""
    n_distinct = 0
    for group in range(start, stop):
        for f in range(groups.user_ids.shape[1]):
            row = groups.user_ids[group, f]
            if slot[row] < 0:
                slot[row] = n_distinct
                rows[n_distinct] = row
                n_distinct += 1
            user_slots[group - start, f] = slot[row]
        for g in range(groups.item_ids.shape[1]):
            for f in range(groups.item_ids.shape[2]):
                row = groups.item_ids[group, g, f]
                if slot[row] < 0:
                    slot[row] = n_distinct
                    rows[n_distinct] = row
                    n_distinct += 1
                item_slots[group - start, g, f] = slot[row]
    return n_distinct


@compiled
def release_slots(slot: Ints, rows: Ints, begin: int, end: int) -> None:
    for place in range(begin, end):
        slot[rows[place]] = -1


@compiled
def update(
    optimiser: int,
    lr: Any,
    first_correction: Floats,
    second_correction: Floats,
    values: Floats,
    first_moment: Floats,
    second_moment: Floats,
    updates: Floats,
    row: int,
    gradients: Floats,
    i: int,
    weight_decay: Any,
) -> None:
    """Update a row by row i of the gradients; updates: how many there were of each row. Whoever updates many takes the arrays
    out of their tuples before the loop: that each time costs several times the update."""
    if weight_decay > 0:
        for k in range(values.shape[1]):
            values[row, k] *= _ONE - lr * weight_decay
    if optimiser == SGD:
        for k in range(values.shape[1]):
            values[row, k] -= lr * gradients[i, k]
    elif optimiser == ADAGRAD:
        for k in range(values.shape[1]):
            first_moment[row, k] += gradients[i, k] * gradients[i, k]
            values[row, k] -= lr * gradients[i, k] / (np.sqrt(first_moment[row, k]) + _ADAGRAD_EPSILON)
    else:
        updates[row, 0] += _ONE
        count = min(int(updates[row, 0]), first_correction.size - 1)
        step, scale = lr * first_correction[count], second_correction[count]
        for k in range(values.shape[1]):
            gradient = gradients[i, k]
            mean = _BETA_1 * first_moment[row, k] + _NEW_1 * gradient
            square = _BETA_2 * second_moment[row, k] + _NEW_2 * gradient * gradient
            first_moment[row, k], second_moment[row, k] = mean, square
            values[row, k] -= step * mean / (np.sqrt(square * scale) + _ADAM_EPSILON)


@compiled
def update_row(rule: Rule, rows: Rows, row: int, gradients: Floats, i: int) -> None:
    update(
        rule.optimiser,
        rule.lr,
        rule.first_correction,
        rule.second_correction,
        rows.table,
        rows.first_moment,
        rows.second_moment,
        rows.updates,
        row,
        gradients,
        i,
        rule.weight_decay,
    )


@compiled
def update_dense(rule: Rule, dense: Dense, gradients: Floats) -> None:
    """By the first row of the gradients, without weight decay."""
    if rule.optimiser != ADAM:
        dense.updates[0, 0] += _ONE  # Adam counts by itself
    update(
        rule.optimiser,
        rule.lr,
        rule.first_correction,
        rule.second_correction,
        dense.values,
        dense.first_moment,
        dense.second_moment,
        dense.updates,
        0,
        gradients,
        0,
        np.float32(0.0),
    )
