"""Full ranking: every candidate of every tested row. Scores are computed for a block of rows at a time and passed over once.

For N rows and I items the cost is that of N x I scores and one compiled pass over them; memory is that of a block.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gmlfm.data.dataset import Rows
from gmlfm.errors import DataError
from gmlfm.evaluation.candidates import Candidates
from gmlfm.evaluation.metrics import Places
from gmlfm.retrieval import Ranker
from gmlfm.retrieval.threads import in_threads, scoring_threads

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Report = Callable[[int, int], None]  # rows done, of how many
_SCORES_PER_BLOCK = 96_000_000  # 384 MB over all threads: wide products come near to the processor's best
_FEWEST_SCORES_PER_THREAD = 100_000
_NEVER_ENDS = np.iinfo(np.int32).max
_NOTHING = np.empty(0, np.int32)


@dataclass(frozen=True)
class _Block:
    """Rows by their places among the tested ones, and the items that they are ranked among, in ascending order."""

    rows: Longs
    items: Ints


def rank_all(ranker: Ranker, candidates: Candidates, n: int, report: Report | None = None) -> tuple[Places, Ints]:
    """Each target's place among its candidates, and the n best candidates of each row, the target included: (N, n), -1 where
    there are fewer; equal scores in the order of item numbers."""
    n_rows, n = len(candidates.rows), min(n, len(candidates.pools.items))
    better, tied = np.empty(n_rows, np.int64), np.empty(n_rows, np.int64)
    lists = np.full((n_rows, n), -1, np.int32)
    done = 0
    for block, ranks, listed in _ranked_blocks(ranker, candidates, n):
        better[block.rows], tied[block.rows], lists[block.rows] = ranks.better, ranks.tied, listed
        done += len(block.rows)
        if report is not None:
            report(done, n_rows)
    return Places(better, tied), lists


def _ranked_blocks(ranker: Ranker, candidates: Candidates, n: int) -> Iterator[tuple[_Block, Places, Ints]]:
    """Where a ranker can be asked by several threads, each of them scores and ranks blocks of its own."""
    n_threads = scoring_threads()
    if n_threads == 1 or not getattr(ranker, "scores_in_threads", False):
        with ThreadPoolExecutor(n_threads) as threads:
            for block in _blocks(candidates, _SCORES_PER_BLOCK):
                yield (block, *_rank_block(ranker, candidates, block, n, threads, n_threads))
        return
    memory = threading.local()
    ranker.score_all(candidates.users[:1], candidates.pools.items, candidates.rows[:1])  # what is computed once, by one

    def ranked(block: _Block | None) -> tuple[_Block, Places, Ints] | None:
        return None if block is None else (block, *_rank_block(ranker, candidates, block, n, None, 1, memory))

    blocks = _blocks(candidates, _SCORES_PER_BLOCK // n_threads)
    for result in in_threads(ranked, itertools.chain([None], blocks), n_threads=n_threads):
        if result is not None:
            yield result


def _blocks(candidates: Candidates, scores_per_block: int) -> Iterator[_Block]:
    """By pool and, where items can be had for a time, in the order of time: neighbours share most of their candidates."""
    pools, target_pools = candidates.pools, candidates.pools.of(candidates.targets)
    for pool in np.unique(target_pools):
        items = np.flatnonzero(pools.pool == pool).astype(np.int32)
        rows = np.flatnonzero(target_pools == pool)
        if candidates.times is not None:
            rows = rows[np.argsort(candidates.times[rows], kind="stable")]
        rows_per_block = max(1, scores_per_block // len(items))
        for start in range(0, len(rows), rows_per_block):
            block = rows[start : start + rows_per_block]
            yield _Block(block, _items_of(candidates, block, items))


def _items_of(candidates: Candidates, rows: Longs, items: Ints) -> Ints:
    """Of a pool's items those that can be had at any of these rows, and the targets."""
    if candidates.times is None or candidates.pools.interval is None:
        return items
    start, end = candidates.pools.interval
    times = candidates.times[rows]
    is_live = (start[items] <= times[-1]) & (end[items] >= times[0])
    return np.union1d(items[is_live], candidates.targets[rows]).astype(np.int32)


def _rank_block(
    ranker: Ranker,
    candidates: Candidates,
    block: _Block,
    n: int,
    threads: ThreadPoolExecutor | None,
    n_threads: int,
    memory: threading.local | None = None,
) -> tuple[Places, Ints]:
    """threads: share in the pass over the scores; None where this is one of several threads, with memory of its own."""
    from gmlfm.kernels.cpu.ranking import rank_rows

    rows, items, users = block.rows, block.items, candidates.users[block.rows]
    if memory is None:
        scores = np.ascontiguousarray(ranker.score_all(users, items, candidates.rows[rows]), np.float32)
    else:
        scores = _scored(ranker, users, items, candidates.rows[rows], memory)
    column_of = np.full(len(candidates.data.items), -1)
    column_of[items] = np.arange(len(items))
    places, excluded = candidates.sampler.excluded_of(users)
    columns = column_of[excluded]
    places, columns = places[columns >= 0], columns[columns >= 0]
    starts = np.searchsorted(places, np.arange(len(rows) + 1))
    times, begins, ends = _NOTHING, _NOTHING, _NOTHING
    if candidates.times is not None and candidates.pools.interval is not None:
        start, end = candidates.pools.interval
        times, begins, ends = (
            np.minimum(moments, _NEVER_ENDS).astype(np.int32) for moments in (candidates.times[rows], start[items], end[items])
        )
    better, tied = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
    listed = np.empty((len(rows), n), np.int32)
    arrays = (column_of[candidates.targets[rows]], starts, columns, times, begins, ends, better, tied, listed)
    n_parts = min(n_threads, len(rows), 1 + scores.size // _FEWEST_SCORES_PER_THREAD)
    bounds = np.linspace(0, len(rows), n_parts + 1).astype(np.int64)
    parts = itertools.pairwise(bounds)
    share = map if threads is None else threads.map
    if not all(share(lambda part: rank_rows(scores, part[0], part[1], *arrays), parts)):
        raise DataError("a score is no number (NaN), so nothing can be ranked.")
    return Places(better, tied), np.where(listed < 0, -1, items[listed]).astype(np.int32)


def _scored(ranker: Any, users: Ints, items: Ints, rows: Rows, memory: threading.local) -> npt.NDArray[np.float32]:
    """Into the memory of the thread's last block: new memory costs half as much as the scores."""
    size = len(users) * len(items)
    if getattr(memory, "scores", _NOTHING).size < size:
        memory.scores = np.empty(size, np.float32)
    scores: npt.NDArray[np.float32] = ranker.score_into(users, items, rows, memory.scores[:size].reshape(len(users), -1))
    return scores
