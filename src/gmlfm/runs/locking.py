"""One writer at a time, and one training at a time, in a run folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gmlfm.locking import LockedError, locked
from gmlfm.runs.layout import LOCK, TRAINING_LOCK

_SECONDS = 60.0  # a writer holds the lock for seconds; who waits longer is told who has it


@contextmanager
def writers_lock(folder: Path, seconds: float = _SECONDS) -> Iterator[None]:
    """Wait for the other writers of this run; refused, naming the holder, after so many seconds."""
    with locked(folder, LOCK, seconds, "is being written"):
        yield


@contextmanager
def training_lock(folder: Path) -> Iterator[None]:
    """A folder has one training at a time: a second one is refused at once."""
    with locked(folder, TRAINING_LOCK, 0.0, "is being trained in"):
        yield


def is_being_trained(folder: Path) -> bool:
    """Whether another process, or this one, trains in the folder at the moment."""
    if not (folder / TRAINING_LOCK).exists():
        return False
    try:
        with training_lock(folder):
            return False
    except LockedError:
        return True
