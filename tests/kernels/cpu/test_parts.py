from __future__ import annotations

import threading

import pytest

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
