"""Blocks of users scored by several threads, each on its own: threads that meet after every operation, as torch's do, wait for
each other most of the time on a machine that does other work beside."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from gmlfm.kernels.cpu.single_threads import on_one_torch_thread, one_torch_thread, torch_threads
from gmlfm.machine import usable_processors

Part = TypeVar("Part")
Result = TypeVar("Result")


def scoring_threads() -> int:
    """As many as torch was told to use, within what the process may use of the machine."""
    return min(torch_threads(), usable_processors())


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
    with one_torch_thread(), _pool(n_threads) as threads:
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


def _pool(n_threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(n_threads, thread_name_prefix="gmlfm-scoring", initializer=on_one_torch_thread)
