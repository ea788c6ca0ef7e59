"""Ranks and top-n lists from scores in one pass over them: counts and a heap instead of sorts."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gmlfm.kernels.cpu.jit import compiled

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Counts = tuple[np.int32, np.int32, np.int32, np.int32]
_CHUNK = 256  # columns that are counted together, and looked at singly only where one of them belongs to the n best
_ONE, _ZERO = np.int32(1), np.int32(0)


@compiled
def rank_rows(
    scores: Floats,
    begin: int,
    stop: int,
    targets: Longs,
    starts: Longs,
    excluded: Longs,
    times: Ints,
    begins: Ints,
    ends: Ints,
    better: Longs,
    tied: Longs,
    lists: Ints,
) -> bool:
    """Ranks the targets of the rows begin to stop of scores (N, I), and lists the best of each row; False where one is NaN.

    targets (N,): columns; excluded: columns in ascending order, those of row r from starts[r] to starts[r + 1]: no candidates,
    but for the target itself. begins, ends (I,) and times (N,): a column is a candidate where begins <= time <= ends; empty
    where every column always is. better, tied (N,): of the candidates beside the target, how many score higher and how many
    the same. lists (N, n): the columns of the n best candidates, the target included; equal scores in the order of columns,
    -1 where there are no more; a score of -inf is never listed.
    """
    n, is_timed = lists.shape[1], times.size > 0
    heap_scores, heap_columns = np.empty(n, np.float32), np.empty(n, np.int32)
    is_number = True
    for row in range(begin, stop):
        values, target = scores[row], targets[row]
        score, time = values[target], times[row] if is_timed else _ZERO
        excluded_here = excluded[starts[row] : starts[row + 1]]
        n_better, n_tied, size, lowest = 0, 0, 0, np.float32(-np.inf)
        for start in range(0, values.size, _CHUNK):
            end = min(start + _CHUNK, values.size)
            if is_timed:
                counts = _count_timed(values[start:end], score, lowest, time, begins[start:end], ends[start:end])
            else:
                counts = _count(values[start:end], score, lowest)
            n_better += int(counts[0])
            n_tied += int(counts[1])
            is_number &= counts[2] == 0
            if counts[3] == 0:
                continue
            for column in range(start, end):
                value = values[column]
                if not value > lowest or (is_timed and column != target and not begins[column] <= time <= ends[column]):
                    continue
                if column != target and _contains(excluded_here, column):
                    continue
                if size < n:
                    heap_scores[size], heap_columns[size] = value, column
                    size += 1
                    _sift_up(heap_scores, heap_columns, size - 1)
                else:
                    heap_scores[0], heap_columns[0] = value, column
                    _sift_down(heap_scores, heap_columns, size)
                if size == n:
                    lowest = heap_scores[0]
        if not is_timed or begins[target] <= time <= ends[target]:
            n_tied -= 1
        for column in excluded_here:
            if column != target and (not is_timed or begins[column] <= time <= ends[column]):
                n_better -= values[column] > score
                n_tied -= values[column] == score
        better[row], tied[row] = n_better, n_tied
        lists[row, size:] = -1
        for place in range(size - 1, -1, -1):
            lists[row, place] = heap_columns[0]
            heap_scores[0], heap_columns[0] = heap_scores[place], heap_columns[place]
            _sift_down(heap_scores, heap_columns, place)
    return is_number


@compiled
def _count(values: Floats, score: np.float32, lowest: np.float32) -> Counts:
    """How many are above the score, equal to it, no number, and above the lowest score of the list."""
    above, equal, no_number, listed = _ZERO, _ZERO, _ZERO, _ZERO
    for column in range(values.size):
        value = values[column]
        above += _ONE if value > score else _ZERO
        equal += _ONE if value == score else _ZERO
        no_number += _ONE if value != value else _ZERO
        listed += _ONE if value > lowest else _ZERO
    return above, equal, no_number, listed


@compiled
def _count_timed(values: Floats, score: np.float32, lowest: np.float32, time: np.int32, begins: Ints, ends: Ints) -> Counts:
    """The same among those that can be had at that time; no number: of all, and listed: also of those that cannot be had."""
    above, equal, no_number, listed = _ZERO, _ZERO, _ZERO, _ZERO
    for column in range(values.size):
        value = values[column]
        is_available = (_ONE if begins[column] <= time else _ZERO) & (_ONE if time <= ends[column] else _ZERO)
        above += is_available & (_ONE if value > score else _ZERO)
        equal += is_available & (_ONE if value == score else _ZERO)
        no_number += _ONE if value != value else _ZERO
        listed += _ONE if value > lowest else _ZERO
    return above, equal, no_number, listed


@compiled
def _contains(columns: Longs, column: int) -> bool:
    low, high = 0, columns.size
    while low < high:
        middle = (low + high) // 2
        if columns[middle] < column:
            low = middle + 1
        else:
            high = middle
    return bool(low < columns.size and columns[low] == column)


@compiled
def _is_worse(scores: Floats, columns: Ints, left: int, right: int) -> bool:
    """Whether the entry left comes after right in a list: a lower score, or the same and a later column."""
    return bool(scores[left] < scores[right] or (scores[left] == scores[right] and columns[left] > columns[right]))


@compiled
def _swap(scores: Floats, columns: Ints, left: int, right: int) -> None:
    score, column = scores[left], columns[left]
    scores[left], columns[left] = scores[right], columns[right]
    scores[right], columns[right] = score, column


@compiled
def _sift_up(scores: Floats, columns: Ints, place: int) -> None:
    """The worst entry is the root."""
    while place > 0 and _is_worse(scores, columns, place, (place - 1) // 2):
        _swap(scores, columns, place, (place - 1) // 2)
        place = (place - 1) // 2


@compiled
def _sift_down(scores: Floats, columns: Ints, size: int) -> None:
    place = 0
    while 2 * place + 1 < size:
        child = 2 * place + 1
        if child + 1 < size and _is_worse(scores, columns, child + 1, child):
            child += 1
        if not _is_worse(scores, columns, child, place):
            return
        _swap(scores, columns, child, place)
        place = child
