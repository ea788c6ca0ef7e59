"""Asking for a row changes nothing, wherever it lies and however long it is."""

from __future__ import annotations

import numpy as np
import pytest

from gmlfm.kernels.cpu.arrays import Floats
from gmlfm.kernels.cpu.jit import compiled
from gmlfm.kernels.cpu.prefetch import prefetch_row


@compiled
def sum_of_rows(table: Floats) -> float:
    total = 0.0
    for row in range(table.shape[0]):
        if row + 2 < table.shape[0]:
            prefetch_row(table, row + 2)
        for k in range(table.shape[1]):
            total += table[row, k]
            table[row, k] += 1
    return total


@pytest.mark.parametrize("width", [1, 16, 65])
def test_rows_are_as_they_were(width: int) -> None:
    table = np.arange(7 * width, dtype=np.float32).reshape(7, width)
    expected = table + 1
    assert sum_of_rows(table) == pytest.approx((expected - 1).sum())
    np.testing.assert_array_equal(table, expected)
