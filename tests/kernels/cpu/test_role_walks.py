"""The walks over a part of the pieces; what they compute is tested through CpuRoleSums in test_role_sums.py."""

from __future__ import annotations

import numpy as np

from gmlfm.kernels.cpu.role_walks import PieceArrays, add_last, add_last_back, add_windows, add_windows_back, clear_sums

BATCH = PieceArrays(
    np.array([0, 1, 1], np.int32), np.ones(3, bool), np.array([0, 0, 3]), np.array([1, 2, 3]), np.array([0, 1, 2, 3])
)
VECTORS = np.array([[1, 2, 3], [10, 20, 30]], np.float32)
ONES = np.ones(4)


def test_rows_of_other_pieces_are_left_alone() -> None:
    sums = np.full((3, 3), 7, np.float32)
    scales, youngest = np.full(3, 7, np.float32), np.full(3, 7, np.int64)
    clear_sums(BATCH, 1, 2, sums)
    add_last(BATCH, VECTORS, 1, 2, sums)
    add_windows(BATCH, ONES, VECTORS, 1, 2, scales, youngest, sums)
    np.testing.assert_allclose(sums, [[7] * 3, VECTORS[1] + VECTORS.sum(0) / np.sqrt(2), [7] * 3], rtol=1e-6)
    np.testing.assert_allclose(scales, [7, np.sqrt(0.5), 7])
    assert youngest.tolist() == [7, 1, 7]


def test_other_columns_are_left_alone() -> None:
    scales, youngest = np.array([1, 0.5, 0], np.float32), np.array([0, 1, 0])
    vector_grads = np.full((2, 3), 7, np.float32)
    columns = np.uint64(1), np.uint64(2)
    gradient = np.array([[1, 2, 3], [4, 5, 6], [7, 8, 9]], np.float32)
    add_last_back(BATCH, gradient, *columns, vector_grads)
    assert vector_grads.tolist() == [[7, 9, 7], [7, 12, 7]]
    add_windows_back(BATCH, ONES, scales, youngest, gradient, *columns, vector_grads)
    assert vector_grads.tolist() == [[7, 13.5, 7], [7, 14.5, 7]]
