"""PyTorch with one thread: whoever has threads of their own calls it in each of them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch


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
one_torch_thread = _SINGLE.hold


def on_one_torch_thread() -> None:
    """Called by each thread of one's own while the above holds: torch has a number of threads for each thread, and the BLAS in
    a new one its default, whatever torch says of it."""
    torch.set_num_threads(1)


def torch_threads() -> int:
    """As many as torch was told to use."""
    return _SINGLE.n_threads
