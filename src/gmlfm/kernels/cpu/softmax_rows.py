"""Softmax cross-entropy of a block of rows against all columns: from scores to their gradients, in place. The twin of
gmlfm.kernels.softmax_loss, without its matrix products.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from gmlfm.kernels.cpu.arrays import Floats, Ints, Longs
from gmlfm.kernels.cpu.jit import compiled
from gmlfm.kernels.cpu.maths import add_scaled, clear, dot

_ZERO, _ONE, _HALF = np.float32(0.0), np.float32(1.0), np.float32(0.5)
_MINUS_INFINITY = np.float32(-np.inf)
# exp(x) = 2^(x log2 e): the whole part goes into the exponent, the rest, at most 1/2, through Taylor's polynomial.
_LOG2_E = np.float32(1.4426950408889634)
_E1, _E2, _E3 = np.float32(0.6931471805599453), np.float32(0.2402265069591007), np.float32(0.05550410866482158)
_E4, _E5, _E6 = np.float32(0.009618129107628477), np.float32(0.0013333558146428443), np.float32(0.00015403530393381608)
# exp(-69) = 1e-30: below it 0, so that no product with a weight falls among the denormals, which are slow.
_NOTHING = np.float32(-69.0)
_EXPONENT_BIAS, _MANTISSA_BITS, _SIGN_BIT, _MAGNITUDE = np.int32(127), np.int32(23), np.int32(31), np.int32(0x7FFFFFFF)
_LOWEST_KEY = np.int32(-0x80000000)


class RowArrays(NamedTuple):
    """As SoftmaxRows, with empty arrays for None. shares (B,): of each row's loss in the mean."""

    vectors: Floats
    target_columns: Longs
    mask_items: Ints
    mask_start: Longs
    mask_stop: Longs
    shares: Floats
    moments: Longs


class ColumnArrays(NamedTuple):
    """As SoftmaxColumns, with empty arrays for None. terms: the columns' own, with the correction."""

    vectors: Floats
    terms: Floats
    column_of_item: Ints
    starts: Longs
    ends: Longs


class TargetArrays(NamedTuple):
    """As SoftmaxTargets; empty for the whole catalogue."""

    vectors: Floats
    terms: Floats


class RowGradients(NamedTuple):
    """losses (B,), row_grads (B, D), and, empty for the whole catalogue, target_grads (B, D), target_term_grads (B,)."""

    losses: Floats
    row_grads: Floats
    target_grads: Floats
    target_term_grads: Floats


@compiled
def exp_below_zero(x: Any) -> Any:
    """exp x for x <= 0, to 3e-7; no call, so that loops over it become vector loops."""
    y = x * _LOG2_E
    whole = np.int32(y - _HALF)
    f = y - np.float32(whole)
    power = np.int32((whole + _EXPONENT_BIAS) << _MANTISSA_BITS).view(np.float32)
    value = power * (_ONE + f * (_E1 + f * (_E2 + f * (_E3 + f * (_E4 + f * (_E5 + f * _E6))))))
    return _ZERO if x < _NOTHING else value


@compiled
def _key(x: Any) -> Any:
    """An integer that orders as the number does, and NaN before or after all: a maximum of integers is taken by vectors."""
    bits = np.float32(x).view(np.int32)
    return np.int32(bits ^ ((bits >> _SIGN_BIT) & _MAGNITUDE))


@compiled
def _from_key(key: Any) -> Any:
    return np.int32(key ^ ((key >> _SIGN_BIT) & _MAGNITUDE)).view(np.float32)


@compiled
def _add_terms(scores: Floats, terms: Floats) -> Any:
    """Adds the columns' terms; returns the key of the highest score."""
    highest = _LOWEST_KEY
    for j in range(scores.size):
        score = scores[j] + terms[j]
        scores[j] = score
        highest = max(highest, _key(score))
    return highest


@compiled
def _mask_times(scores: Floats, starts: Longs, ends: Longs, moment: int) -> None:
    for j in range(scores.size):
        scores[j] = _MINUS_INFINITY if starts[j] > moment or ends[j] < moment else scores[j]


@compiled
def _exponentials(scores: Floats, highest: Any) -> Any:
    """exp(score - highest), in place; returns their sum."""
    total = _ZERO
    for j in range(scores.size):
        value = exp_below_zero(scores[j] - highest)
        scores[j] = value
        total += value
    return total


@compiled
def _scale(scores: Floats, scale: Any, term_grads: Floats) -> None:
    for j in range(scores.size):
        value = scores[j] * scale
        scores[j] = value
        term_grads[j] += value


@compiled
def scores_to_gradients(
    rows: RowArrays,
    columns: ColumnArrays,
    targets: TargetArrays,
    begin_row: int,
    end_row: int,
    block: Floats,
    term_grads: Floats,
    out: RowGradients,
) -> None:
    """block: (end_row - begin_row, C) products of the rows' vectors with the columns'; becomes the loss's gradients at them,
    which are added to term_grads (C,), too."""
    for row in range(begin_row, end_row):
        _of_row(rows, columns, targets, row, block[row - begin_row], term_grads, out)


@compiled
def _of_row(
    rows: RowArrays,
    columns: ColumnArrays,
    targets: TargetArrays,
    row: int,
    scores: Floats,
    term_grads: Floats,
    out: RowGradients,
) -> None:
    target, is_sampled = rows.target_columns[row], targets.terms.size > 0
    target_product = scores[target] if target >= 0 else _ZERO
    if columns.starts.size > 0 and rows.moments.size > 0:
        _mask_times(scores, columns.starts, columns.ends, rows.moments[row])
    for entry in range(rows.mask_start[row], rows.mask_stop[row]):
        column = columns.column_of_item[rows.mask_items[entry]]
        if column >= 0:
            scores[column] = _MINUS_INFINITY
    if target >= 0:
        scores[target] = _MINUS_INFINITY if is_sampled else target_product
    key = _add_terms(scores, columns.terms)
    if is_sampled:
        target_score = dot(rows.vectors, row, targets.vectors, row) + targets.terms[row]
        key = max(key, _key(target_score))
    else:
        target_score = scores[target]
    highest = _from_key(key)
    total = _exponentials(scores, highest)
    target_part = exp_below_zero(target_score - highest)
    if is_sampled:
        total += target_part
    else:
        scores[target] = target_part - total
    share = rows.shares[row]
    out.losses[row] = share * (np.float32(math.log(total)) + (highest - target_score))
    scale = share / total
    if is_sampled:
        out.target_term_grads[row] = scale * (target_part - total)
    _scale(scores, scale, term_grads)


@compiled
def add_target_grads(rows: RowArrays, targets: TargetArrays, begin_row: int, end_row: int, out: RowGradients) -> None:
    """In the sampled mode what the targets, which are no columns, have and add."""
    for row in range(begin_row, end_row):
        gradient = out.target_term_grads[row]
        for k in range(rows.vectors.shape[1]):
            out.target_grads[row, k] = gradient * rows.vectors[row, k]
            out.row_grads[row, k] += gradient * targets.vectors[row, k]


@compiled
def add_parts(part_grads: Any, part_term_grads: Floats, begin: int, end: int, column_grads: Floats, term_grads: Floats) -> None:
    """The columns begin to end: their gradients summed over the parts, (N, C, D) and (N, C), in order."""
    for j in range(begin, end):
        clear(column_grads, j)
        total = _ZERO
        for part in range(part_grads.shape[0]):
            add_scaled(column_grads, j, _ONE, part_grads[part], j)
            total += part_term_grads[part, j]
        term_grads[j] = total
