r"""Softmax cross-entropy of row vectors against column vectors: the plain reference in float64, a loop over rows.

.. math:: s_{bj} = p_b^\top q_j + c_j \qquad \ell_b = \log \sum_j e^{s_{bj}} - s_b^{target}

The loss is the mean of l_b by the rows' weights. Masked columns are left out of the sum: those of the items that the row's user
already had, and those that cannot be had at the row's moment. The target is never masked.

Two modes. Whole catalogue: the target is one of the columns. Sampled: the columns are negatives that all rows share, drawn
without replacement, so that no item is two columns; the target has a score of its own, p_b . T_b + t_b; a column that is the
row's target is masked; `correction`, log(I / n) for n of I items, is added to the score of each negative, not of the target.

Letters: B rows, C columns, D width, I items.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Reals = npt.NDArray[np.floating]
Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]


class SoftmaxRows(NamedTuple):
    """vectors (B, D). target_columns (B,): the place of the target among the columns; in the sampled mode -1 where it is none.
    The items that row b masks are mask_items[mask_start[b]:mask_stop[b]]. weights (B,): all 1 where None. moments (B,): when a
    row is, for columns with an availability."""

    vectors: Reals
    target_columns: Longs
    mask_items: Ints
    mask_start: Longs
    mask_stop: Longs
    weights: Reals | None = None
    moments: Longs | None = None


class SoftmaxColumns(NamedTuple):
    """vectors (C, D), self_terms (C,). column_of_item (I,): its place among the columns, -1: it is none. correction: added to
    each column's score, 0 for the whole catalogue. starts, ends (C,): the first and the last moment of each, None: always."""

    vectors: Reals
    self_terms: Reals
    column_of_item: Ints
    correction: float = 0.0
    starts: Longs | None = None
    ends: Longs | None = None


class SoftmaxTargets(NamedTuple):
    """In the sampled mode, the rows' targets: vectors (B, D), self_terms (B,)."""

    vectors: Reals
    self_terms: Reals


class SoftmaxResult(NamedTuple):
    """The loss and its gradients. row_grads (B, D); column_grads (C, D), column_term_grads (C,); in the sampled mode
    target_grads (B, D), target_term_grads (B,), else None."""

    loss: float
    row_grads: Reals
    column_grads: Reals
    column_term_grads: Reals
    target_grads: Reals | None
    target_term_grads: Reals | None


def softmax_loss(rows: SoftmaxRows, columns: SoftmaxColumns, targets: SoftmaxTargets | None = None) -> SoftmaxResult:
    """targets: None in the whole-catalogue mode. Where all weights are 0, so are the loss and its gradients."""
    p, q = rows.vectors.astype(np.float64), columns.vectors.astype(np.float64)
    result = SoftmaxResult(
        0.0,
        np.zeros_like(p),
        np.zeros_like(q),
        np.zeros(len(q)),
        None if targets is None else np.zeros_like(p),
        None if targets is None else np.zeros(len(p)),
    )
    weights = np.ones(len(p)) if rows.weights is None else rows.weights.astype(np.float64)
    loss, total_weight = 0.0, weights.sum()
    if total_weight == 0:
        return result
    for row, share in enumerate(weights / total_weight):
        free = np.flatnonzero(~_is_masked(rows, columns, row, targets is not None))
        scores = q[free] @ p[row] + columns.self_terms[free] + columns.correction
        if targets is None:
            target = int(np.flatnonzero(free == rows.target_columns[row])[0])
        else:
            target_vector = targets.vectors[row].astype(np.float64)
            target = len(scores)
            scores = np.append(scores, target_vector @ p[row] + targets.self_terms[row])
        normaliser = np.logaddexp.reduce(scores)
        loss += share * (normaliser - scores[target])
        score_grads = np.exp(scores - normaliser)
        score_grads[target] -= 1.0
        score_grads *= share
        if targets is not None:
            assert result.target_grads is not None
            assert result.target_term_grads is not None
            result.target_grads[row] = score_grads[target] * p[row]
            result.target_term_grads[row] = score_grads[target]
            result.row_grads[row] = score_grads[target] * target_vector
            score_grads = score_grads[:target]
        result.row_grads[row] += score_grads @ q[free]
        result.column_grads[free] += np.outer(score_grads, p[row])
        result.column_term_grads[free] += score_grads
    return result._replace(loss=float(loss))


def _is_masked(rows: SoftmaxRows, columns: SoftmaxColumns, row: int, is_sampled: bool) -> npt.NDArray[np.bool_]:
    is_masked = np.zeros(len(columns.vectors), np.bool_)
    for item in rows.mask_items[rows.mask_start[row] : rows.mask_stop[row]]:
        if columns.column_of_item[item] >= 0:
            is_masked[columns.column_of_item[item]] = True
    if rows.moments is not None and columns.starts is not None and columns.ends is not None:
        is_masked |= (columns.starts > rows.moments[row]) | (columns.ends < rows.moments[row])
    if rows.target_columns[row] >= 0:
        is_masked[rows.target_columns[row]] = is_sampled
    return is_masked
