"""Blocks of users scored by several threads, each on its own: threads that meet after every operation, as torch's do, wait for
each other most of the time on a machine that does other work beside."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

from gmlfm.machine import usable_processors

Part = TypeVar("Part")
Result = TypeVar("Result")


class _SingleThreads:
    """How many callers want torch to use one thread in each of theirs, and how many it used before the first of them."""

    def __init__(self) -> None:
        self._lock, self._n_callers, self._before = threading.Lock(), 0, 1

    @contextmanager
    def hold(self) -> Iterator[None]:
        with self._lock:
            if self._n_callers == 0:
                self._before = torch.get_num_threads()
                torch.set_num_threads(1)
            self._n_callers += 1
        try:
            yield
        finally:
            with self._lock:
                self._n_callers -= 1
                if self._n_callers == 0:
                    torch.set_num_threads(self._before)

    @property
    def n_threads(self) -> int:
        with self._lock:
            return self._before if self._n_callers else torch.get_num_threads()


_SINGLE = _SingleThreads()


def scoring_threads() -> int:
    """As many as torch was told to use, within what the process may use of the machine."""
    return min(_SINGLE.n_threads, usable_processors())


def in_threads(function: Callable[[Part], Result], parts: Iterable[Part], *, n_threads: int | None = None) -> Iterator[Result]:
    """function(part) for each part, in their order. The first one is computed alone: what it leaves in caches serves others.

    Some parts are computed ahead of the one that is asked for; a part that fails ends the others.
    """
    n_threads = scoring_threads() if n_threads is None else n_threads
    waiting = iter(parts)
    for first in waiting:
        yield function(first)
        break
    if n_threads <= 1:
        yield from map(function, waiting)
        return
    pending: deque[Future[Result]] = deque()
    with _SINGLE.hold(), ThreadPoolExecutor(n_threads, thread_name_prefix="gmlfm-scoring") as threads:
        try:
            for part in waiting:
                pending.append(threads.submit(function, part))
                if len(pending) > n_threads:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()
