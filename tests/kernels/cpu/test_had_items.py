"""Masked columns against a loop over rows and events."""

from __future__ import annotations

import numpy as np
import pytest

from gmlfm.kernels.cpu.had_items import columns_had

N_ITEMS = 12


@pytest.mark.parametrize("seed", range(8))
def test_they_are_the_had_items_before_each_row_that_are_columns(seed: int) -> None:
    rng = np.random.default_rng(seed)
    items, is_had = rng.integers(0, N_ITEMS, 60).astype(np.int32), rng.random(60) < 0.7
    column_of_item = np.where(rng.random(N_ITEMS) < 0.5, np.arange(N_ITEMS), -1).astype(np.int32)
    starts = np.sort(rng.integers(0, 50, 6))
    sizes = rng.integers(1, 4, 6)
    pieces = np.cumsum([0, *sizes])
    start = np.repeat(starts, sizes)
    stop = np.concatenate(
        [begin + np.sort(rng.integers(-1, 61 - begin, size)) for begin, size in zip(starts, sizes, strict=True)]
    )
    had, had_start, had_stop = np.full(400, -7, np.int32), np.empty(len(start), np.int64), np.empty(len(start), np.int64)
    n = columns_had(items, is_had, column_of_item, start, stop, pieces, had, had_start, had_stop)
    for row in range(len(start)):
        expected = [items[event] for event in range(start[row], stop[row]) if is_had[event]]
        expected = [item for item in expected if column_of_item[item] >= 0]
        assert had[had_start[row] : had_stop[row]].tolist() == expected
    assert n == had_stop.max()
    assert (had[n:] == -7).all()
