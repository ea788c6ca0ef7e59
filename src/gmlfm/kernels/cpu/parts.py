"""A computation in parts, taken by threads as they come free.

What a part computes does not depend on who takes it, so the numbers do not depend on the threads; beside a busy neighbour the
thread that has a processor takes more of them.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from threading import Lock

from gmlfm.kernels.cpu.single_threads import on_one_torch_thread, one_torch_thread


class Parts:
    """Threads that wait between calls; the caller is the first of them. In each torch has one thread."""

    def __init__(self, n_threads: int = 1) -> None:
        self.n_threads = n_threads
        self._pool: ThreadPoolExecutor | None = None

    def run(self, work: Callable[[int, int], None], n_parts: int) -> None:
        """work(part, thread) for each part, the threads numbered below n_threads. Returns when all are done; where one fails,
        no further part is begun."""
        parts, lock, failed = count(), Lock(), False

        def take(thread: int) -> None:
            nonlocal failed
            on_one_torch_thread()
            while not failed:
                with lock:
                    part = next(parts)
                if part >= n_parts:
                    return
                try:
                    work(part, thread)
                except BaseException:
                    failed = True
                    raise

        n_helpers = min(self.n_threads, n_parts) - 1
        with one_torch_thread():
            helpers = [self._threads().submit(take, thread) for thread in range(1, n_helpers + 1)] if n_helpers > 0 else []
            try:
                take(0)
            finally:
                errors = [helper.exception() for helper in helpers]
        for error in errors:
            if error is not None:
                raise error

    def _threads(self) -> ThreadPoolExecutor:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.n_threads - 1, thread_name_prefix="gmlfm-parts")
        return self._pool
