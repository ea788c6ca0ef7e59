"""What the library warns of while an answer is made, in the thread that makes it: the answer's notes."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_collecting = threading.local()
_before: Any = None


@contextmanager
def noted() -> Iterator[list[str]]:
    """The warnings of this thread in the block. `warnings.catch_warnings` would change them for all threads."""
    _listen()
    notes: list[str] = []
    outer = getattr(_collecting, "notes", None)
    _collecting.notes = notes
    try:
        yield notes
    finally:
        _collecting.notes = outer


def _listen() -> None:
    global _before
    if warnings.showwarning is not _show:
        _before = warnings.showwarning
        warnings.showwarning = _show  # type: ignore[assignment]
        # Always, not once for each place: every asker is to be told.
        warnings.filterwarnings("always", category=UserWarning, module=r"gmlfm\.")


def _show(message: Any, category: Any, filename: str, lineno: int, file: Any = None, source: str | None = None) -> None:
    notes = getattr(_collecting, "notes", None)
    if notes is None or category is not UserWarning:
        _before(message, category, filename, lineno, file, source)
    elif str(message) not in notes:
        notes.append(str(message))
