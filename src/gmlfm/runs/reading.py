"""Who reads a generation holds it: a writer who has replaced it leaves it until then."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PAUSE = 0.02


@contextmanager
def held_for_reading(generation: Path) -> Iterator[None]:
    """Needs no right to write. Where a folder cannot be locked, or is gone, what is read is checked all the same."""
    handle = None
    with suppress(OSError):
        handle = os.open(generation, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)


def is_left_by_readers(generation: Path, patience: float) -> bool:
    """Whether nobody reads it, now or within so many seconds."""
    try:
        handle = os.open(generation, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return True
    deadline = time.monotonic() + patience
    try:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    return False
            except OSError:
                return True
            time.sleep(_PAUSE)
    finally:
        os.close(handle)
