from __future__ import annotations

import threading

import pytest
import torch

from gmlfm.retrieval import threads
from gmlfm.retrieval.threads import in_threads, scoring_threads


@pytest.fixture
def two_threads(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(threads, "usable_processors", lambda: 2)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield 2  # type: ignore[misc]
    torch.set_num_threads(before)


def test_parts_come_in_their_order_and_the_first_alone(two_threads: int) -> None:
    met, names = threading.Barrier(two_threads), {}

    def square(part: int) -> int:
        names[part] = threading.current_thread()
        if part:
            met.wait(10)  # both threads are at work
            assert torch.get_num_threads() == 1
        return part * part

    assert list(in_threads(square, range(9))) == [part * part for part in range(9)]
    assert names[0] is threading.main_thread()
    assert threading.main_thread() not in [names[part] for part in range(1, 9)]
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("n_parts", [0, 1, 2, 50])
@pytest.mark.parametrize("n_threads", [1, 2, 5])
def test_any_number_of_parts_and_threads(n_parts: int, n_threads: int) -> None:
    assert list(in_threads(str, range(n_parts), n_threads=n_threads)) == [str(part) for part in range(n_parts)]


def test_what_fails_is_heard_of_and_torch_has_its_threads_again(two_threads: int) -> None:
    def fails(part: int) -> float:
        return 1 / (part - 3)

    with pytest.raises(ZeroDivisionError):
        list(in_threads(fails, range(50)))
    assert torch.get_num_threads() == 2
    parts = in_threads(fails, range(100, 200))
    assert next(parts) == 1 / 97
    assert next(parts) == 1 / 98
    assert torch.get_num_threads() == 1
    parts.close()  # nobody wants the rest
    assert torch.get_num_threads() == 2


def test_callers_at_the_same_time_restore_the_number_once(two_threads: int) -> None:
    outer = in_threads(str, range(10))
    next(outer), next(outer)
    inner = in_threads(str, range(10))
    next(inner), next(inner)
    assert scoring_threads() == 2  # what was asked for, not what it is at the moment
    outer.close()
    assert torch.get_num_threads() == 1
    inner.close()
    assert torch.get_num_threads() == 2


def test_a_quota_bounds_the_threads(two_threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "usable_processors", lambda: 1)
    assert scoring_threads() == 1
