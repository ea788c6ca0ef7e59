"""The run of steps, the same for every kernel.

A step goes in three rounds over threads: what is computed once for each distinct row; the groups, each thread adding to
gradients of its own; the sums of the gradients and the rows' updates.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange

from gmlfm.kernels.cpu import pairs_transform, sums
from gmlfm.kernels.cpu.arrays import Dense, Floats, Groups, Rows, Rule
from gmlfm.kernels.cpu.jit import threaded
from gmlfm.kernels.cpu.losses import term_share
from gmlfm.kernels.cpu.maths import add_scaled
from gmlfm.kernels.cpu.pairs import walk_pairs
from gmlfm.kernels.cpu.pairs_transform import PairsShape
from gmlfm.kernels.cpu.rows import assign_slots, release_slots, update_dense
from gmlfm.kernels.cpu.sums_arrays import SumsShape

_ZERO, _ONE = np.float32(0.0), np.float32(1.0)


@threaded
def run_steps(
    pairs_shape: PairsShape | None,
    sums_shape: SumsShape | None,
    rule: Rule,
    groups: Groups,
    groups_per_step: int,
    rows: Rows,
    dense: Dense,
    work: Any,
    n_threads: int,
    losses: Floats,
) -> None:
    """Steps through all groups; losses: one for each step. A loss that is no number ends the run.

    One of the two shapes is the model's, the other None: numba drops the branches of a None before it compiles.
    work: a PairsWork or a SumsWork.
    """
    for step in range(losses.size):
        start, stop = step * groups_per_step, min((step + 1) * groups_per_step, groups.labels.shape[0])
        n = stop - start
        n_distinct = assign_slots(groups, start, stop, rows.slot, work.rows, work.user_slots, work.item_slots)
        share = term_share(rule.loss, groups, start, stop)
        for thread in prange(n_threads):
            begin, end = n_distinct * thread // n_threads, n_distinct * (thread + 1) // n_threads
            if sums_shape is not None:
                sums.gather_rows(rows.table, work, begin, end)
            if pairs_shape is not None:
                pairs_transform.transform(pairs_shape, rows.table, dense.values[0], work, begin, end)
        for thread in prange(n_threads):
            begin, end = n * thread // n_threads, n * (thread + 1) // n_threads
            if sums_shape is not None:
                sums.walk_sums(
                    sums_shape, rule, groups, share, start, n, begin, end, dense.values[0, 0], work, n_distinct, thread
                )
            if pairs_shape is not None:
                walk_pairs(
                    pairs_shape, rule, groups, share, start, begin, end, dense.values[0], rows.table, work, n_distinct, thread
                )
        loss = _ZERO
        for thread in range(n_threads):
            loss += work.losses[thread]
        losses[step] = loss
        if np.isfinite(loss):
            for thread in prange(n_threads):
                begin, end = n_distinct * thread // n_threads, n_distinct * (thread + 1) // n_threads
                if sums_shape is not None:
                    sums.finish_rows(rule, rows, work, begin, end, n_threads)
                if pairs_shape is not None:
                    pairs_transform.finish_rows(pairs_shape, rule, rows, dense.values[0], work, begin, end, thread, n_threads)
            for thread in range(1, n_threads):
                add_scaled(work.dense_grads, 0, _ONE, work.dense_grads, thread)
            update_dense(rule, dense, work.dense_grads)
        release_slots(rows.slot, work.rows, n_distinct)
        if not np.isfinite(loss):
            break
