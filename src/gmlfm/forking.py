"""A process that was forked from one that had used gmlfm is told so at once: neither polars nor PyTorch has its threads there,
and both would wait for them without end."""

from __future__ import annotations

import os

from gmlfm.errors import NotSupportedError

_used_in: int | None = None


def refuse_after_fork() -> None:
    """To be called wherever work begins; the first call says which process this is."""
    global _used_in
    if _used_in is None:
        _used_in = os.getpid()
    elif _used_in != os.getpid():
        raise NotSupportedError(
            "this process was forked from one that had used gmlfm already, whose threads it does not have; start processes by "
            "multiprocessing.get_context('spawn'), or fork before gmlfm is first used."
        )
