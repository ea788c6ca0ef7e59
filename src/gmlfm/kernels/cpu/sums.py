"""Steps of models whose rows go into scores as they are: FM, matrix factorization and TransFM."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import prange

from gmlfm.kernels.cpu.arrays import Dense, Floats, Groups, Ints, Rows, Rule
from gmlfm.kernels.cpu.fm import walk_fm
from gmlfm.kernels.cpu.jit import compiled, threaded
from gmlfm.kernels.cpu.losses import share_of_one
from gmlfm.kernels.cpu.maths import add_scaled
from gmlfm.kernels.cpu.rows import give_slots, take_slots_back, update_dense, update_row
from gmlfm.kernels.cpu.transfm import walk_transfm

_ZERO, _ONE = np.float32(0.0), np.float32(1.0)


class Shape(NamedTuple):
    """translated: TransFM, rows (w, v, t); otherwise an FM, rows (w, v). biased: the linear weights count.

    user_decay, item_decay: PMF's L2 of each instance's factors. The dense parameters' line holds the global bias alone.
    """

    k: int
    translated: bool
    biased: bool
    user_decay: Any
    item_decay: Any


class Work(NamedTuple):
    """Room for one step of at most U distinct rows, as (U, width), and for each lane their gradients."""

    rows: Ints
    user_side: Ints
    item_side: Ints
    values: Floats
    gradients: Floats
    bias_gradients: Floats
    losses: Floats


@threaded
def run_steps(
    shape: Shape, rule: Rule, groups: Groups, size: int, rows: Rows, dense: Dense, work: Work, lanes: int, losses: Floats
) -> None:
    """Steps of `size` groups each, through all of them; losses: one a step. A loss that is no number ends the run."""
    n_groups = groups.labels.shape[0]
    for at in range(losses.size):
        start, stop = at * size, min((at + 1) * size, n_groups)
        found = give_slots(groups, start, stop, rows.slot, work.rows, work.user_side, work.item_side)
        share, n = share_of_one(rule.objective, groups, start, stop), stop - start
        for slot in range(found):
            for k in range(work.values.shape[1]):
                work.values[slot, k] = rows.table[work.rows[slot], k]
        for lane in prange(lanes):
            begin, end = n * lane // lanes, n * (lane + 1) // lanes
            walk_groups(shape, rule, groups, share, start, n, begin, end, dense.values[0, 0], work, found, lane)
        loss = _ZERO
        for lane in range(lanes):
            loss += work.losses[lane]
        losses[at] = loss
        if np.isfinite(loss):
            for lane in prange(lanes):
                finish_rows(rule, rows, work, found * lane // lanes, found * (lane + 1) // lanes, lanes)
            for lane in range(1, lanes):
                work.bias_gradients[0, 0] += work.bias_gradients[lane, 0]
            update_dense(rule, dense, work.bias_gradients)
        take_slots_back(rows.slot, work.rows, found)
        if not np.isfinite(loss):
            break


@compiled
def walk_groups(
    shape: Shape,
    rule: Rule,
    groups: Groups,
    share: Any,
    start: int,
    n: int,
    begin: int,
    end: int,
    bias: Any,
    work: Work,
    found: int,
    lane: int,
) -> None:
    """One lane's groups: begin to end of the n that this step has from start on."""
    gradients = work.gradients[lane]
    gradients[:found] = _ZERO
    if shape.translated:
        loss, slope = walk_transfm(
            shape.k, rule, groups, share, start, begin, end, bias, work.values, work.user_side, work.item_side, gradients
        )
    else:
        loss, slope = walk_fm(
            shape.k,
            shape.biased,
            shape.user_decay / np.float32(n),
            shape.item_decay / np.float32(n * groups.labels.shape[1]),
            rule,
            groups,
            share,
            start,
            begin,
            end,
            bias,
            work.values,
            work.user_side,
            work.item_side,
            gradients,
        )
    work.losses[lane], work.bias_gradients[lane, 0] = loss, slope


@compiled
def finish_rows(rule: Rule, rows: Rows, work: Work, begin: int, end: int, lanes: int) -> None:
    together = work.gradients[0]
    for other in range(1, lanes):
        theirs = work.gradients[other]
        for slot in range(begin, end):
            add_scaled(together, slot, _ONE, theirs, slot)
    for slot in range(begin, end):
        update_row(rule, rows, work.rows[slot], together, slot)
