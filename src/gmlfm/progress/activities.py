"""What is being done, told where it is done. A telling costs a look at a variable while nobody watches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

Words = str | Callable[[float], str]


class Activity:
    """Something that takes time: in words, and how much of it is done where that is known.

    words: a text; or a function of the time (as the watcher's clock tells it), which then speaks of the time left itself.
    unit: what `done` and `total` count; bytes are shown as MB.
    """

    def __init__(self, words: Words, unit: str = "", started: float = 0.0) -> None:
        self.words, self.unit, self.started = words, unit, started
        self.done: int | None = None
        self.total: int | None = None

    def update(self, done: int | None = None, total: int | None = None, words: Words | None = None) -> None:
        self.done, self.total = done, total
        if words is not None:
            self.words = words


class Watcher(Protocol):
    """Shows the activities under way, the outermost first."""

    def begin(self, words: Words, unit: str) -> Activity: ...

    def end(self, activity: Activity) -> None: ...


_watcher: ContextVar[Watcher | None] = ContextVar("watcher", default=None)


def current_watcher() -> Watcher | None:
    return _watcher.get()


@contextmanager
def watched_by(watcher: Watcher | None) -> Iterator[None]:
    """Activities of the block are shown by this watcher; by nobody with None."""
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)


@contextmanager
def activity(words: Words, unit: str = "") -> Iterator[Activity]:
    """Tells that the block is under way; it may `update` how far it is."""
    watcher = _watcher.get()
    if watcher is None:
        yield Activity(words, unit)
        return
    begun = watcher.begin(words, unit)
    try:
        yield begun
    finally:
        watcher.end(begun)
