"""Groups of models whose rows go into scores as they are: FM and matrix factorization (fm.py), TransFM (transfm.py)."""

from __future__ import annotations

from typing import Any

import numpy as np

from gmlfm.kernels.cpu import fm, transfm
from gmlfm.kernels.cpu.arrays import Floats, Groups, Rows, Rule
from gmlfm.kernels.cpu.jit import compiled
from gmlfm.kernels.cpu.losses import group_loss
from gmlfm.kernels.cpu.maths import add_scaled
from gmlfm.kernels.cpu.rows import update_row
from gmlfm.kernels.cpu.sums_arrays import GroupSums, SumsShape, SumsWork

_ZERO, _ONE = np.float32(0.0), np.float32(1.0)


@compiled
def gather_rows(table: Floats, work: SumsWork, begin: int, end: int) -> None:
    """The rows of the slots begin to end, side by side."""
    for slot in range(begin, end):
        for k in range(work.values.shape[1]):
            work.values[slot, k] = table[work.rows[slot], k]


@compiled
def walk_sums(
    shape: SumsShape,
    rule: Rule,
    groups: Groups,
    share: Any,
    start: int,
    n: int,
    begin: int,
    end: int,
    bias: Any,
    work: SumsWork,
    n_distinct: int,
    thread: int,
) -> None:
    """Scores, loss and gradients of the groups begin to end of the n that this step has from start on."""
    row_grads, k, size, user_width = work.row_grads[thread], shape.k, groups.labels.shape[1], groups.user_x.shape[1]
    row_grads[:n_distinct] = _ZERO
    user_x, user_slots = groups.user_x.reshape(-1, 1, user_width), work.user_slots.reshape(-1, 1, user_width)
    state = GroupSums(
        np.empty((1 + size, k), np.float32),
        np.empty((1 + size, k), np.float32),
        np.empty(size, np.float32),
        np.empty(size, np.float32),
        np.empty(size, np.float32),
        np.empty(size, np.float32),
        np.empty((1, k), np.float32),
    )
    user_l2, item_l2 = shape.user_l2 / np.float32(n), shape.item_l2 / np.float32(n * size)
    total, bias_grad, user_amount = _ZERO, _ZERO, _ZERO
    for place in range(begin, end):
        group = start + place
        user, item = (user_slots, user_x), (work.item_slots, groups.item_x)
        if shape.translated:
            user_amount = transfm.score_group(k, bias, user, item, place, group, work.values, state)
        else:
            fm.score_group(shape.linear, bias, user, item, place, group, work.values, state)
        scale = share * groups.weights[group] if groups.weights.size else share
        total += scale * group_loss(rule.loss, state.scores, groups.labels, group, state.score_grads)
        if shape.translated:
            bias_grad += transfm.group_back(k, scale, user_amount, user, item, place, group, work.values, state, row_grads)
        else:
            total, grad_sum = fm.group_back(
                shape.linear, user_l2, item_l2, total, scale, user, item, place, group, work.values, state, row_grads
            )
            bias_grad += grad_sum
    work.losses[thread], work.dense_grads[thread, 0] = total, bias_grad


@compiled
def finish_rows(rule: Rule, rows: Rows, work: SumsWork, begin: int, end: int, n_threads: int) -> None:
    """The slots begin to end: their gradients summed over threads, and the rows updated."""
    row_grads = work.row_grads[0]
    for other in range(1, n_threads):
        other_grads = work.row_grads[other]
        for slot in range(begin, end):
            add_scaled(row_grads, slot, _ONE, other_grads, slot)
    for slot in range(begin, end):
        update_row(rule, rows, work.rows[slot], row_grads, slot)
