from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from gmlfm.data.schema import Field
from gmlfm.data.sources.preparing import learning


def test_numbers_are_thinned_evenly_beyond_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "_MOST_NUMBERS", 100)
    values = learning._Values(Field("price", "number"))
    for start in range(0, 1000, 50):
        values.add(pl.Series(np.arange(start, start + 50, dtype=float)))
    numbers = np.concatenate(values._numbers)
    assert 25 < len(numbers) <= 100
    assert np.diff(numbers).max() <= 64


def test_ranks_follow_the_counts_and_leave_out_the_rare() -> None:
    assert learning._ranks(np.array([2, 0, 5, 2], np.int32), 1).tolist() == [1, -1, 0, 2]
