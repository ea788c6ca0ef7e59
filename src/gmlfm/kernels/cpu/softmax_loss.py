"""The softmax over shared columns on a CPU: rows in parts, whose gradients at the columns are added in order."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from gmlfm.kernels.cpu.arrays import Floats
from gmlfm.kernels.cpu.parts import Parts
from gmlfm.kernels.cpu.softmax_rows import (
    ColumnArrays,
    RowArrays,
    RowGradients,
    TargetArrays,
    add_parts,
    add_target_grads,
    scores_to_gradients,
)
from gmlfm.kernels.softmax_loss import SoftmaxColumns, SoftmaxResult, SoftmaxRows, SoftmaxTargets

_MOST_PARTS, _PART_BYTES = 8, 2**27  # of all the parts' gradients at the columns
_SCORES_PER_BLOCK = 2**20  # 4 MiB for each thread: of the third cache, since products of fewer rows are slower than it
_FEWEST_ROWS, _MOST_ROWS = 64, 256  # of a block
_COLUMNS_PER_SUM = 256
_NO_LONGS, _NO_FLOATS = np.empty(0, np.int64), np.empty(0, np.float32)


class _Buffers(NamedTuple):
    """blocks: of scores, one a thread."""

    blocks: list[Floats]
    part_grads: Floats
    part_term_grads: Floats
    column_grads: Floats
    term_grads: Floats
    out: RowGradients


class CpuSoftmaxLoss:
    """`softmax_loss` in float32, 6 B C D operations; never more scores than a block of rows for each thread.

    The matrix products are PyTorch's, whose BLAS is the faster one at such shapes (1.3 times the rate of SciPy's OpenBLAS on an
    Intel processor); what is between them is compiled. Another number of threads gives the same numbers. The results of a
    call are overwritten by the next. Rows, items and columns that do not exist are not looked for: compiled code reads and
    writes wherever it is told to.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._buffers: tuple[tuple[Any, ...], _Buffers] | None = None

    def __call__(self, rows: SoftmaxRows, columns: SoftmaxColumns, targets: SoftmaxTargets | None = None) -> SoftmaxResult:
        n_rows, n_columns = len(rows.vectors), len(columns.vectors)
        assert targets is not None or (rows.target_columns >= 0).all(), "every target is a column of the whole catalogue"
        rows_per_block = _rows_per_block(n_columns)
        most_parts = max(1, min(_MOST_PARTS, _PART_BYTES // max(1, 4 * columns.vectors.size)))
        n_parts = max(1, min(most_parts, n_rows // _FEWEST_ROWS))
        buffers = self._buffers_for(n_rows, columns.vectors.shape, most_parts, targets is not None)
        part_grads, part_term_grads = buffers.part_grads[:n_parts], buffers.part_term_grads[:n_parts]
        out = RowGradients(*(array[:n_rows] for array in buffers.out))
        row_arrays, column_arrays, target_arrays = _row_arrays(rows), _column_arrays(columns), _target_arrays(targets, rows)
        vectors, column_vectors, row_grads = (
            torch.from_numpy(array) for array in (row_arrays.vectors, column_arrays.vectors, out.row_grads)
        )

        def walk(part: int, thread: int) -> None:
            begin, end = n_rows * part // n_parts, n_rows * (part + 1) // n_parts
            column_grads, term_grads = torch.from_numpy(part_grads[part]), part_term_grads[part]
            term_grads[:] = 0.0
            for start in range(begin, end, rows_per_block):
                stop = min(start + rows_per_block, end)
                block = buffers.blocks[thread][: (stop - start) * n_columns].reshape(stop - start, n_columns)
                scores = torch.from_numpy(block)
                torch.mm(vectors[start:stop], column_vectors.T, out=scores)
                scores_to_gradients(row_arrays, column_arrays, target_arrays, start, stop, block, term_grads, out)
                torch.mm(scores, column_vectors, out=row_grads[start:stop])
                _add_product(column_grads, scores.T, vectors[start:stop], is_first=start == begin)
            if targets is not None:
                add_target_grads(row_arrays, target_arrays, begin, end, out)

        def add(part: int, thread: int) -> None:
            begin, end = part * _COLUMNS_PER_SUM, min((part + 1) * _COLUMNS_PER_SUM, n_columns)
            add_parts(part_grads, part_term_grads, begin, end, buffers.column_grads, buffers.term_grads)

        with torch.no_grad():
            self._parts.run(walk, n_parts)
        self._parts.run(add, -(-n_columns // _COLUMNS_PER_SUM))
        return SoftmaxResult(
            float(out.losses.sum(dtype=np.float64)),
            out.row_grads,
            buffers.column_grads,
            buffers.term_grads,
            None if targets is None else out.target_grads,
            None if targets is None else out.target_term_grads,
        )

    def _buffers_for(self, n_rows: int, shape: tuple[int, ...], most_parts: int, is_sampled: bool) -> _Buffers:
        """Those of the last call where they are large enough: new memory costs as much as a pass over it."""
        key = (shape, is_sampled)
        if self._buffers is None or self._buffers[0] != key or len(self._buffers[1].out.losses) < n_rows:
            n_columns, width = shape
            rows_per_block = _rows_per_block(n_columns)
            blocks = [_floats(rows_per_block * n_columns) for _ in range(self._parts.n_threads)]
            n_targets = n_rows if is_sampled else 0
            out = RowGradients(_floats(n_rows), _floats(n_rows, width), _floats(n_targets, width), _floats(n_targets))
            part_grads, part_term_grads = _floats(most_parts, n_columns, width), _floats(most_parts, n_columns)
            self._buffers = key, _Buffers(blocks, part_grads, part_term_grads, _floats(*shape), _floats(n_columns), out)
        return self._buffers[1]


def _add_product(total: Tensor, left: Tensor, right: Tensor, *, is_first: bool) -> None:
    """The product is added to the total; is_first: becomes the total."""
    if is_first:
        torch.mm(left, right, out=total)
    else:
        total.addmm_(left, right)


def _rows_per_block(n_columns: int) -> int:
    return max(_FEWEST_ROWS, min(_MOST_ROWS, _SCORES_PER_BLOCK // max(n_columns, 1)))


def _floats(*shape: int) -> Floats:
    return np.empty(shape, np.float32)


def _row_arrays(rows: SoftmaxRows) -> RowArrays:
    n_rows = len(rows.vectors)
    weights = np.ones(n_rows) if rows.weights is None else rows.weights.astype(np.float64)
    total = weights.sum()
    return RowArrays(
        np.ascontiguousarray(rows.vectors, np.float32),
        np.ascontiguousarray(rows.target_columns, np.int64),
        np.ascontiguousarray(rows.mask_items, np.int32),
        np.ascontiguousarray(rows.mask_start, np.int64),
        np.ascontiguousarray(rows.mask_stop, np.int64),
        (weights / total if total != 0 else np.zeros(n_rows)).astype(np.float32),
        _NO_LONGS if rows.moments is None else np.ascontiguousarray(rows.moments, np.int64),
    )


def _column_arrays(columns: SoftmaxColumns) -> ColumnArrays:
    always = columns.starts is None or columns.ends is None
    return ColumnArrays(
        np.ascontiguousarray(columns.vectors, np.float32),
        (columns.self_terms + np.float32(columns.correction)).astype(np.float32),
        np.ascontiguousarray(columns.column_of_item, np.int32),
        _NO_LONGS if always else np.ascontiguousarray(columns.starts, np.int64),
        _NO_LONGS if always else np.ascontiguousarray(columns.ends, np.int64),
    )


def _target_arrays(targets: SoftmaxTargets | None, rows: SoftmaxRows) -> TargetArrays:
    if targets is None:
        return TargetArrays(np.empty((0, rows.vectors.shape[1]), np.float32), _NO_FLOATS)
    vectors, terms = np.ascontiguousarray(targets.vectors, np.float32), np.ascontiguousarray(targets.self_terms, np.float32)
    return TargetArrays(vectors, terms)
