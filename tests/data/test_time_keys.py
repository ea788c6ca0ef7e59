from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gmlfm.data.time_keys import order_statistics, time_keys, time_of_key

INTEGERS = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats(allow_nan=False)


@given(st.lists(INTEGERS, min_size=1, max_size=30), st.integers(1, 4), st.data())
def test_order_statistics_are_those_of_the_sorted_whole(times: list[int], n_blocks: int, data: st.DataObject) -> None:
    places = data.draw(st.lists(st.integers(0, len(times) - 1), min_size=1, max_size=3))
    blocks = np.array_split(time_keys(pl.Series(times, dtype=pl.Int64)), n_blocks)
    assert order_statistics(lambda: iter(blocks), places) == [sorted(times)[place] for place in places]


@given(st.lists(FLOATS, min_size=1, max_size=30), st.data())
def test_keys_of_floats_are_in_the_order_of_their_times(times: list[float], data: st.DataObject) -> None:
    keys = time_keys(pl.Series(times, dtype=pl.Float64))
    by_key, values = np.sort(keys), np.sort(np.array(times))
    assert [time_of_key(int(key), is_float=True) for key in by_key] == values.tolist()
    place = data.draw(st.integers(0, len(times) - 1))
    assert time_of_key(order_statistics(lambda: [keys], [place])[0], is_float=True) == values[place]


@pytest.mark.parametrize("zeros", [[0.0, -0.0], [-0.0, 0.0]])
def test_both_zeros_are_one_moment(zeros: list[float]) -> None:
    assert len(set(time_keys(pl.Series(zeros)).tolist())) == 1
