from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from gmlfm.training.engines.workers import WorkerCount, Workers

GROUPS_PER_STEP = 100


def simulated(
    count: WorkerCount, rate: Callable[[int, float], float], seconds: float, start: float = 0.0
) -> list[tuple[float, int]]:
    """Blocks of training on a machine where so many workers make rate(workers, now) groups a second: when each began, and how
    many workers it had."""
    now, blocks = start, []
    while now < start + seconds:
        workers, groups = count.next, count.steps_per_block(GROUPS_PER_STEP) * GROUPS_PER_STEP
        blocks.append((now, workers))
        duration = groups / rate(workers, now)
        count.record(workers, groups, duration)
        now += duration
    return blocks


def share(blocks: list[tuple[float, int]], workers: int) -> float:
    return sum(number == workers for _, number in blocks) / len(blocks)


def idle(workers: int, now: float) -> float:
    return 450_000.0 * workers


def contended(workers: int, now: float) -> float:
    return 450_000.0 if workers == 1 else 60_000.0


def test_an_idle_machine_is_used_whole() -> None:
    count = WorkerCount(2)
    blocks = simulated(count, idle, 30.0)
    assert count.current == 2
    assert share(blocks, 2) > 0.99


def test_beside_a_busy_neighbour_fewer_are_taken_at_once_and_all_again_when_it_is_gone() -> None:
    count = WorkerCount(2)
    simulated(count, idle, 5.0)
    blocks = simulated(count, contended, 20.0, start=5.0)
    assert count.current == 1
    assert share(blocks, 1) > 0.97
    assert next(now for now, workers in blocks if workers == 1) < 5.5
    blocks = simulated(count, idle, 12.0, start=25.0)
    assert count.current == 2
    assert next(now for now, workers in blocks if workers == 2) < 25.0 + 8.5


def test_half_of_them_may_be_best() -> None:
    count = WorkerCount(8)
    assert count.candidates == [1, 4, 8]
    simulated(count, lambda workers, _: {1: 100_000.0, 4: 350_000.0, 8: 200_000.0}[workers], 5.0)
    assert count.current == 4


def test_blocks_take_some_hundredths_of_a_second() -> None:
    count = WorkerCount(2)
    assert count.steps_per_block(GROUPS_PER_STEP) == 1  # nothing is known yet
    simulated(count, idle, 1.0)
    assert count.steps_per_block(GROUPS_PER_STEP) * GROUPS_PER_STEP / 900_000 == pytest.approx(0.02, rel=0.1)
    assert count.steps_per_block(10**9) == 1


def test_one_worker_has_nothing_to_choose() -> None:
    count = WorkerCount(1)
    assert count.candidates == [1]
    assert share(simulated(count, idle, 5.0), 1) == 1.0


def test_workers_work_at_the_same_time_and_the_caller_is_one_of_them() -> None:
    workers, met, names = Workers(3), threading.Barrier(3), {}

    def work(worker: int) -> None:
        met.wait(10)
        names[worker] = threading.current_thread()

    for _ in range(2):
        workers.run(work, 3, lambda: None)
        assert sorted(names) == [0, 1, 2]
        assert names[0] is threading.main_thread()
        assert len(set(names.values())) == 3


@pytest.mark.parametrize("failing", [0, 1])
def test_a_worker_that_fails_is_heard_of_and_the_others_do_not_wait(failing: int) -> None:
    workers, met = Workers(2), threading.Barrier(2)

    def work(worker: int) -> None:
        if worker == failing:
            raise ZeroDivisionError
        with pytest.raises(threading.BrokenBarrierError):
            met.wait(10)

    with pytest.raises(ZeroDivisionError):
        workers.run(work, 2, met.abort)
