from __future__ import annotations

import threading

import psutil
import pytest
import torch

from gmlfm.kernels.cpu.parts import Parts


@pytest.mark.parametrize("n_threads", [1, 2, 5])
@pytest.mark.parametrize("n_parts", [0, 1, 40])
def test_each_part_is_done_and_no_two_at_a_time_by_the_same_thread(n_threads: int, n_parts: int) -> None:
    done, busy, lock = [], set(), threading.Lock()

    def work(part: int, thread: int) -> None:
        with lock:
            assert thread not in busy
            busy.add(thread)
        with lock:
            done.append(part)
            busy.remove(thread)

    parts = Parts(n_threads)
    for _ in range(2):
        done.clear()
        parts.run(work, n_parts)
        assert sorted(done) == list(range(n_parts))


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("failing", [0, 1])
def test_a_part_that_fails_is_told_and_ends_the_run(n_threads: int, failing: int) -> None:
    begun = []

    def work(part: int, thread: int) -> None:
        begun.append(part)
        if part == failing:
            raise ValueError("no such part")

    parts = Parts(n_threads)
    with pytest.raises(ValueError, match="no such part"):
        parts.run(work, 10_000)
    assert len(begun) < 10_000
    begun.clear()
    parts.run(lambda part, thread: begun.append(part), 3)
    assert sorted(begun) == [0, 1, 2]


def test_products_in_a_part_start_no_threads_of_their_own() -> None:
    """What torch says of a new thread need not be what its BLAS does there."""
    before, started = torch.get_num_threads(), dict[int, int]()
    torch.set_num_threads(3)
    try:
        barrier, process, matrix = threading.Barrier(2), psutil.Process(), torch.ones(400, 400)

        def work(part: int, thread: int) -> None:
            barrier.wait(10)  # each of the two threads takes one
            before_product = {thread.id for thread in process.threads()}
            for _ in range(5):
                torch.mm(matrix, matrix)
            barrier.wait(10)
            started[thread] = len({thread.id for thread in process.threads()} - before_product)

        Parts(2).run(work, 2)
        assert started == {0: 0, 1: 0}
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
