"""Softmax cross-entropy of a range of rows against all columns, with its gradients. The twin of gmlfm.kernels.softmax_loss.

Scores are computed for a block of rows at a time and stay in the cache until the gradients are taken from them. The scores of a
block lie tile after tile of columns, (rows, width) each, so that the products read and write whole arrays.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from gmlfm.kernels.cpu.arrays import Floats, Ints, Longs
from gmlfm.kernels.cpu.jit import compiled
from gmlfm.kernels.cpu.maths import add_scaled, clear, dot

TILE = 512
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


class Scratch(NamedTuple):
    """scores: (rows per block * C,); product (TILE, D), row_product (rows per block, D)."""

    scores: Floats
    product: Floats
    row_product: Floats


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
def _scores_to_gradients(
    rows: RowArrays,
    columns: ColumnArrays,
    targets: TargetArrays,
    row: int,
    i: int,
    n_rows: int,
    scores: Floats,
    term_grads: Floats,
    out: RowGradients,
) -> None:
    """Row i of the block of n_rows: its scores become the loss's gradients at them."""
    n_columns, target = columns.vectors.shape[0], rows.target_columns[row]
    is_sampled, is_timed = targets.terms.size > 0, columns.starts.size > 0 and rows.moments.size > 0
    target_score, target_place = _ZERO, 0
    if target >= 0:
        target_place = _place(target, i, n_rows, n_columns)
        target_score = scores[target_place]
    if is_timed:
        for begin in range(0, n_columns, TILE):
            end, place = min(begin + TILE, n_columns), _place(begin, i, n_rows, n_columns)
            _mask_times(
                scores[place : place + end - begin], columns.starts[begin:end], columns.ends[begin:end], rows.moments[row]
            )
    for entry in range(rows.mask_start[row], rows.mask_stop[row]):
        column = columns.column_of_item[rows.mask_items[entry]]
        if column >= 0:
            scores[_place(column, i, n_rows, n_columns)] = _MINUS_INFINITY
    if target >= 0:
        scores[target_place] = _MINUS_INFINITY if is_sampled else target_score
    key = _LOWEST_KEY
    for begin in range(0, n_columns, TILE):
        end, place = min(begin + TILE, n_columns), _place(begin, i, n_rows, n_columns)
        key = max(key, _add_terms(scores[place : place + end - begin], columns.terms[begin:end]))
    if is_sampled:
        target_score = dot(rows.vectors, row, targets.vectors, row) + targets.terms[row]
        key = max(key, _key(target_score))
    else:
        target_score = scores[target_place]
    highest, total = _from_key(key), _ZERO
    for begin in range(0, n_columns, TILE):
        end, place = min(begin + TILE, n_columns), _place(begin, i, n_rows, n_columns)
        total += _exponentials(scores[place : place + end - begin], highest)
    target_part = exp_below_zero(target_score - highest)
    if is_sampled:
        total += target_part
    share = rows.shares[row]
    out.losses[row] = share * (np.float32(math.log(total)) + (highest - target_score))
    scale = share / total
    if is_sampled:
        target_grad = scale * (target_part - total)
        out.target_term_grads[row] = target_grad
        for k in range(rows.vectors.shape[1]):
            out.target_grads[row, k] = target_grad * rows.vectors[row, k]
            out.row_grads[row, k] = target_grad * targets.vectors[row, k]
    else:
        scores[target_place] = target_part - total
        clear(out.row_grads, row)
    for begin in range(0, n_columns, TILE):
        end, place = min(begin + TILE, n_columns), _place(begin, i, n_rows, n_columns)
        _scale(scores[place : place + end - begin], scale, term_grads[begin:end])


@compiled
def _place(column: int, i: int, n_rows: int, n_columns: int) -> int:
    """Where the score of row i of a block stands: the tiles before, the rows before in its tile, the columns before."""
    begin = column - column % TILE
    return begin * n_rows + i * min(TILE, n_columns - begin) + column - begin


@compiled
def walk_rows(
    rows: RowArrays,
    columns: ColumnArrays,
    targets: TargetArrays,
    begin_row: int,
    end_row: int,
    rows_per_block: int,
    scratch: Scratch,
    column_grads: Floats,
    term_grads: Floats,
    out: RowGradients,
) -> None:
    """The rows begin_row to end_row. column_grads (C, D), term_grads (C,): become the gradients from these rows."""
    n_columns = columns.vectors.shape[0]
    term_grads[:] = _ZERO
    if begin_row == end_row:
        column_grads[:] = _ZERO
    for start in range(begin_row, end_row, rows_per_block):
        stop = min(start + rows_per_block, end_row)
        n_rows, vectors = stop - start, rows.vectors[start:stop]
        for begin in range(0, n_columns, TILE):
            end = min(begin + TILE, n_columns)
            tile = scratch.scores[begin * n_rows : end * n_rows].reshape(n_rows, end - begin)
            np.dot(vectors, columns.vectors[begin:end].T, tile)
        for row in range(start, stop):
            _scores_to_gradients(rows, columns, targets, row, row - start, n_rows, scratch.scores, term_grads, out)
        for begin in range(0, n_columns, TILE):
            end = min(begin + TILE, n_columns)
            tile = scratch.scores[begin * n_rows : end * n_rows].reshape(n_rows, end - begin)
            row_product = scratch.row_product[:n_rows]
            np.dot(tile, columns.vectors[begin:end], row_product)
            for i in range(n_rows):
                add_scaled(out.row_grads, start + i, _ONE, row_product, i)
            if start == begin_row:
                np.dot(tile.T, vectors, column_grads[begin:end])
            else:
                product = scratch.product[: end - begin]
                np.dot(tile.T, vectors, product)
                for j in range(end - begin):
                    add_scaled(column_grads, begin + j, _ONE, product, j)


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
