"""Rows in and out: the distinct rows of a step get slots, and optimisers write them back. The twin of gmlfm.training.rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from gmlfm.kernels.cpu.arrays import Dense, Floats, Groups, Ints, Rows, Rule
from gmlfm.kernels.cpu.jit import compiled

_ONE = np.float32(1.0)
_KEPT, _NEW = np.float32(0.9), np.float32(0.1)
_KEPT_SQUARES, _NEW_SQUARES = np.float32(0.999), np.float32(0.001)
_ADAM_EPSILON, _ADAGRAD_EPSILON = np.float32(1e-8), np.float32(1e-10)


@compiled
def give_slots(groups: Groups, start: int, stop: int, slot: Ints, rows: Ints, user_side: Ints, item_side: Ints) -> int:
    """Number the distinct rows of the groups start to stop; rows: slot -> row; user_side, item_side: slot of each attribute."""
    found = 0
    for at in range(start, stop):
        for f in range(groups.user_ids.shape[1]):
            row = groups.user_ids[at, f]
            if slot[row] < 0:
                slot[row] = found
                rows[found] = row
                found += 1
            user_side[at - start, f] = slot[row]
        for g in range(groups.item_ids.shape[1]):
            for f in range(groups.item_ids.shape[2]):
                row = groups.item_ids[at, g, f]
                if slot[row] < 0:
                    slot[row] = found
                    rows[found] = row
                    found += 1
                item_side[at - start, g, f] = slot[row]
    return found


@compiled
def take_slots_back(slot: Ints, rows: Ints, found: int) -> None:
    for at in range(found):
        slot[rows[at]] = -1


@compiled
def update(
    rule: Rule,
    values: Floats,
    first: Floats,
    second: Floats,
    updates: Floats,
    row: int,
    gradients: Floats,
    at: int,
    weight_decay: Any,
) -> None:
    """A row against row `at` of the gradients; updates: how often so far; optimiser: 0 sgd, 1 adagrad, 2 adam."""
    lr = rule.lr
    if weight_decay > 0:
        for k in range(values.shape[1]):
            values[row, k] *= _ONE - lr * weight_decay
    if rule.optimiser == 0:
        for k in range(values.shape[1]):
            values[row, k] -= lr * gradients[at, k]
    elif rule.optimiser == 1:
        for k in range(values.shape[1]):
            first[row, k] += gradients[at, k] * gradients[at, k]
            values[row, k] -= lr * gradients[at, k] / (np.sqrt(first[row, k]) + _ADAGRAD_EPSILON)
    else:
        updates[row, 0] += _ONE
        times = min(int(updates[row, 0]), rule.fading_first.size - 1)
        step, scale = lr * rule.fading_first[times], rule.fading_second[times]
        for k in range(values.shape[1]):
            one = gradients[at, k]
            mean = _KEPT * first[row, k] + _NEW * one
            square = _KEPT_SQUARES * second[row, k] + _NEW_SQUARES * one * one
            first[row, k], second[row, k] = mean, square
            values[row, k] -= step * mean / (np.sqrt(square * scale) + _ADAM_EPSILON)


@compiled
def update_row(rule: Rule, rows: Rows, row: int, gradients: Floats, at: int) -> None:
    update(rule, rows.table, rows.first, rows.second, rows.updates, row, gradients, at, rule.weight_decay)


@compiled
def update_dense(rule: Rule, dense: Dense, gradients: Floats) -> None:
    """By the first row of the gradients."""
    if rule.optimiser != 2:
        dense.updates[0, 0] += _ONE  # Adam counts by itself
    update(rule, dense.values, dense.first, dense.second, dense.updates, 0, gradients, 0, np.float32(0.0))
