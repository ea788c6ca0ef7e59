"""What users did before, as arrays."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gmlfm.data.histories import grid

bounds = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 5)), max_size=6)


@given(bounds)
def test_a_grid_has_each_range_in_a_row_of_its_own(parts: list[tuple[int, int]]) -> None:
    start = np.array([first for first, _ in parts], np.int64)
    lengths = np.array([length for _, length in parts], np.int64)
    places = grid(start, start + lengths)
    assert places.shape == (len(parts), max(lengths, default=0))
    for row, (first, length) in zip(places, parts, strict=True):
        assert row[:length].tolist() == list(range(first, first + length))
        # Behind the range a place that can be read, too.
        assert ((row[length:] >= 0) & (row[length:] <= max(first + length - 1, 0))).all()
