from __future__ import annotations

import threading

import numpy as np
import pytest

from gmlfm.kernels.cpu.barrier import break_off, meet, new_meeting
from gmlfm.kernels.cpu.jit import compiled

N_ROUNDS = 2_000


@compiled
def rounds(meeting: np.ndarray, worker: int, n_workers: int, shared: np.ndarray) -> int:
    """In each round everybody writes, all meet, and everybody adds up what all have written."""
    wrong = 0
    for number in range(N_ROUNDS):
        shared[worker] = number * (worker + 1)
        meet(meeting, n_workers)
        total = 0
        for other in range(n_workers):
            total += shared[other]
        if total != number * n_workers * (n_workers + 1) // 2:
            wrong += 1
        meet(meeting, n_workers)
    return wrong


@pytest.mark.parametrize("n_workers", [1, 2, 3, 5])
def test_nobody_goes_on_before_all_have_come(n_workers: int) -> None:
    """Also with more threads than processors, which have to give them away."""
    meeting, shared, wrong = new_meeting(), np.zeros(64, np.int64), []
    threads = [
        threading.Thread(target=lambda worker=worker: wrong.append(rounds(meeting, worker, n_workers, shared)))
        for worker in range(n_workers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [0] * n_workers


def test_who_waits_for_one_that_failed_is_told() -> None:
    meeting, results = new_meeting(), []
    waiting = threading.Thread(target=lambda: results.append(meet(meeting, 2)))
    waiting.start()
    break_off(meeting)
    waiting.join()
    assert results == [False]
