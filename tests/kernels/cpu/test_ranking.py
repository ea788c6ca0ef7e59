from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gmlfm.kernels.cpu.ranking import _CHUNK, rank_rows

NOTHING = np.empty(0, np.int32)
VALUES = [-np.inf, -1.0, 0.0, 0.5, 0.5000001, 2.0, np.inf]


def slow_ranks(
    scores: Any, row: int, target: int, excluded: list[int], is_available: Any, n: int
) -> tuple[int, int, list[int]]:
    """Candidate after candidate, then a sort by (score descending, column)."""
    others = [
        column for column in range(scores.shape[1]) if column not in excluded and column != target and is_available[column]
    ]
    better = sum(scores[row, column] > scores[row, target] for column in others)
    tied = sum(scores[row, column] == scores[row, target] for column in others)
    ranked = sorted([*others, target], key=lambda column: (-scores[row, column], column))
    listed = [column for column in ranked if scores[row, column] > -np.inf][:n]
    return int(better), int(tied), listed + [-1] * (n - len(listed))


@st.composite
def blocks(draw: st.DrawFn) -> tuple[Any, ...]:
    n_rows, seed = draw(st.integers(1, 4)), draw(st.integers(0, 2**32 - 1))
    n_columns = draw(st.sampled_from([1, 2, 7, 40, _CHUNK - 1, _CHUNK, _CHUNK + 1, 3 * _CHUNK + 5]))
    rng = np.random.default_rng(seed)
    if draw(st.booleans()):
        scores = rng.choice(np.array(VALUES, np.float32), (n_rows, n_columns))
    else:
        scores = rng.normal(size=(n_rows, n_columns)).astype(np.float32)
    if draw(st.booleans()):
        scores = np.sort(scores, axis=1)  # every column is better than all before
    targets = rng.integers(0, n_columns, n_rows)
    excluded = [
        sorted({*rng.integers(0, n_columns, rng.integers(0, 6)).tolist(), *targets[: row + 1 : 2]}) for row in range(n_rows)
    ]
    timed = draw(st.booleans())
    times = rng.integers(0, 5, n_rows).astype(np.int32) if timed else NOTHING
    first = rng.integers(0, 5, n_columns).astype(np.int32) if timed else NOTHING
    last = (first + rng.integers(0, 4, n_columns)).astype(np.int32) if timed else NOTHING
    return scores, targets, excluded, times, first, last, draw(st.integers(1, min(n_columns, 30)))


@given(blocks())
def test_ranks_and_lists_are_those_of_a_sort(block: tuple[Any, ...]) -> None:
    scores, targets, excluded, times, first, last, n = block
    n_rows = len(scores)
    starts = np.cumsum([0, *map(len, excluded)])
    columns = np.array([column for entries in excluded for column in entries], np.int64)
    better, tied = np.full(n_rows, -9, np.int64), np.full(n_rows, -9, np.int64)
    lists = np.full((n_rows, n), -9, np.int32)
    middle = n_rows // 2  # in two parts, as two threads do it
    for begin, stop in ((0, middle), (middle, n_rows)):
        assert rank_rows(scores, begin, stop, targets, starts, columns, times, first, last, better, tied, lists)
    for row in range(n_rows):
        is_available = np.ones(scores.shape[1], bool) if len(times) == 0 else (first <= times[row]) & (times[row] <= last)
        expected = slow_ranks(scores, row, int(targets[row]), excluded[row], is_available, n)
        assert (int(better[row]), int(tied[row]), lists[row].tolist()) == expected


@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("column", [0, 5, _CHUNK, 2 * _CHUNK])
def test_a_score_that_is_no_number_is_seen_wherever_it_stands(column: int, timed: bool) -> None:
    scores = np.zeros((2, 2 * _CHUNK + 1), np.float32)
    scores[1, column] = np.nan
    times = np.zeros(2, np.int32) if timed else NOTHING
    bounds = np.ones(scores.shape[1], np.int32) if timed else NOTHING  # not even among the candidates
    arrays = (np.array([5, 5]), np.zeros(3, np.int64), np.empty(0, np.int64), times, bounds, bounds)
    results = (np.empty(2, np.int64), np.empty(2, np.int64), np.empty((2, 3), np.int32))
    assert rank_rows(scores, 0, 1, *arrays, *results)
    assert not rank_rows(scores, 0, 2, *arrays, *results)
