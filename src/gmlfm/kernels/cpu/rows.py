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
def give_slots(groups: Groups, start: int, stop: int, slot: Ints, rows: Ints, asking: Ints, answering: Ints) -> int:
    """Number the distinct rows of the groups start to stop; rows: slot -> row; asking, answering: slot of each attribute."""
    found = 0
    for at in range(start, stop):
        for f in range(groups.asking_ids.shape[1]):
            row = groups.asking_ids[at, f]
            if slot[row] < 0:
                slot[row] = found
                rows[found] = row
                found += 1
            asking[at - start, f] = slot[row]
        for g in range(groups.answering_ids.shape[1]):
            for f in range(groups.answering_ids.shape[2]):
                row = groups.answering_ids[at, g, f]
                if slot[row] < 0:
                    slot[row] = found
                    rows[found] = row
                    found += 1
                answering[at - start, g, f] = slot[row]
    return found


@compiled
def take_slots_back(slot: Ints, rows: Ints, found: int) -> None:
    for at in range(found):
        slot[rows[at]] = -1


@compiled
def update(
    rule: Rule, values: Floats, gradient: Floats, first: Floats, second: Floats, updates: Floats, weight_decay: Any
) -> None:
    """One row or all dense parameters; updates: (1,), how often so far; optimiser: 0 sgd, 1 adagrad, 2 adam."""
    lr = rule.lr
    if weight_decay > 0:
        for k in range(values.size):
            values[k] *= _ONE - lr * weight_decay
    if rule.optimiser == 0:
        for k in range(values.size):
            values[k] -= lr * gradient[k]
    elif rule.optimiser == 1:
        for k in range(values.size):
            first[k] += gradient[k] * gradient[k]
            values[k] -= lr * gradient[k] / (np.sqrt(first[k]) + _ADAGRAD_EPSILON)
    else:
        updates[0] += _ONE
        times = min(int(updates[0]), rule.fading_first.size - 1)
        step, scale = lr * rule.fading_first[times], rule.fading_second[times]
        for k in range(values.size):
            one = gradient[k]
            mean = _KEPT * first[k] + _NEW * one
            square = _KEPT_SQUARES * second[k] + _NEW_SQUARES * one * one
            first[k], second[k] = mean, square
            values[k] -= step * mean / (np.sqrt(square * scale) + _ADAM_EPSILON)


@compiled
def update_row(rule: Rule, rows: Rows, row: int, gradient: Floats) -> None:
    # Where an optimiser keeps nothing, there is one row that stands for all and is not touched.
    first = rows.first[min(row, rows.first.shape[0] - 1)]
    second = rows.second[min(row, rows.second.shape[0] - 1)]
    updates = rows.updates[min(row, rows.updates.shape[0] - 1)]
    update(rule, rows.table[row], gradient, first, second, updates, rule.weight_decay)


@compiled
def update_dense(rule: Rule, dense: Dense, gradient: Floats) -> None:
    if rule.optimiser != 2:
        dense.updates[0] += _ONE  # Adam counts by itself
    update(rule, dense.values, gradient, dense.first, dense.second, dense.updates, np.float32(0.0))
