"""The run of steps, the same for every kernel.

A step's work is cut into parts, one for each thread that was asked for: what each part computes and the order in which results
are added do not depend on how many workers take the parts, so neither do the numbers. A step goes in rounds, at whose ends the
workers meet: what is computed once for each distinct row; the groups, each part adding to gradients of its own; the sums of the
gradients and the rows' updates.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gmlfm.kernels.cpu import pairs_transform, sums
from gmlfm.kernels.cpu.arrays import Dense, Floats, Groups, Rows, Rule
from gmlfm.kernels.cpu.barrier import Meeting, meet
from gmlfm.kernels.cpu.jit import compiled
from gmlfm.kernels.cpu.losses import term_share
from gmlfm.kernels.cpu.maths import add_scaled
from gmlfm.kernels.cpu.pairs import walk_pairs
from gmlfm.kernels.cpu.pairs_transform import PairsShape
from gmlfm.kernels.cpu.rows import assign_slots, release_slots, update_dense
from gmlfm.kernels.cpu.sums_arrays import SumsShape

_ZERO, _ONE = np.float32(0.0), np.float32(1.0)


@compiled
def run_steps(
    pairs_shape: PairsShape | None,
    sums_shape: SumsShape | None,
    rule: Rule,
    groups: Groups,
    groups_per_step: int,
    first_step: int,
    last_step: int,
    rows: Rows,
    dense: Dense,
    work: Any,
    n_parts: int,
    losses: Floats,
    meeting: Meeting,
    worker: int,
    n_workers: int,
) -> bool:
    """The steps first_step to last_step through the groups, as worker number `worker` of n_workers, who all call this.

    losses: one for each step. A loss that is no number ends the run; False where another worker failed.
    One of the two shapes is the model's, the other None: numba drops the branches of a None before it compiles.
    work: a PairsWork or a SumsWork.
    """
    for step in range(first_step, last_step):
        start, stop = step * groups_per_step, min((step + 1) * groups_per_step, groups.labels.shape[0])
        n = stop - start
        if worker == n_workers - 1:  # while the first one ends the step before
            work.n_distinct[0] = assign_slots(groups, start, stop, rows.slot, work.rows, work.user_slots, work.item_slots)
        if not meet(meeting, n_workers):
            return False
        n_distinct, share = work.n_distinct[0], term_share(rule.loss, groups, start, stop)
        for part in range(worker, n_parts, n_workers):
            begin, end = n_distinct * part // n_parts, n_distinct * (part + 1) // n_parts
            if sums_shape is not None:
                sums.gather_rows(rows.table, work, begin, end)
            if pairs_shape is not None:
                pairs_transform.transform(pairs_shape, rows.table, dense.values[0], work, begin, end)
        if not meet(meeting, n_workers):
            return False
        for part in range(worker, n_parts, n_workers):
            begin, end = n * part // n_parts, n * (part + 1) // n_parts
            if sums_shape is not None:
                sums.walk_sums(
                    sums_shape, rule, groups, share, start, n, begin, end, dense.values[0, 0], work, n_distinct, part
                )
            if pairs_shape is not None:
                walk_pairs(
                    pairs_shape, rule, groups, share, start, begin, end, dense.values[0], rows.table, work, n_distinct, part
                )
        if not meet(meeting, n_workers):
            return False
        loss = _ZERO
        for part in range(n_parts):
            loss += work.losses[part]
        is_finite = np.isfinite(loss)
        for part in range(worker, n_parts, n_workers):
            begin, end = n_distinct * part // n_parts, n_distinct * (part + 1) // n_parts
            release_slots(rows.slot, work.rows, begin, end)
            if is_finite:
                if sums_shape is not None:
                    sums.finish_rows(rule, rows, work, begin, end, n_parts)
                if pairs_shape is not None:
                    pairs_transform.finish_rows(pairs_shape, rule, rows, dense.values[0], work, begin, end, part, n_parts)
        if not meet(meeting, n_workers):
            return False
        if worker == 0:
            losses[step] = loss
            if is_finite:
                for part in range(1, n_parts):
                    add_scaled(work.dense_grads, 0, _ONE, work.dense_grads, part)
                update_dense(rule, dense, work.dense_grads)
        if not is_finite:
            break
    return True
