"""Whether progress is shown, and how: by where standard error goes."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar

from gmlfm.errors import OptionError
from gmlfm.progress.activities import current_watcher, watched_by
from gmlfm.progress.displays import Display, NotebookDisplay, PlainDisplay, TerminalDisplay

P = ParamSpec("P")
R = TypeVar("R")


@contextmanager
def shown(progress: bool | None = None) -> Iterator[None]:
    """What is done in the block is shown on standard error. None: where somebody looks on, at a terminal or a notebook.

    Somebody who watches already goes on watching; False shows nothing, whoever watches.
    """
    if progress not in (None, True, False):
        raise OptionError(f"progress is {progress!r}; expected True, False, or None for auto.")
    if progress is False:
        with watched_by(None):
            yield
    elif current_watcher() is not None or (progress is None and not is_interactive()):
        yield
    else:
        with display() as watcher, watched_by(watcher):
            yield


def shows_progress(verb: Callable[P, R]) -> Callable[P, R]:
    """For a verb with a keyword `progress`: what it does is shown as that says."""

    @wraps(verb)
    def watched(*args: P.args, **keywords: P.kwargs) -> R:
        with shown(keywords.get("progress")):  # type: ignore[arg-type]
            return verb(*args, **keywords)

    return watched


def display(background: str = "") -> Display:
    """background: what a terminal says while nothing is told."""
    if in_notebook():
        return NotebookDisplay(sys.stderr)
    if not _is_terminal():
        return PlainDisplay(sys.stderr)
    from rich.console import Console

    console = Console(file=sys.stderr)
    return PlainDisplay(sys.stderr) if console.is_dumb_terminal else TerminalDisplay(console, background)


def is_interactive() -> bool:
    """Whether somebody looks on. The main thread alone draws: two displays would draw over each other."""
    return threading.current_thread() is threading.main_thread() and (_is_terminal() or in_notebook())


def in_notebook() -> bool:
    """Whether this is a Jupyter kernel, which has no terminal but somebody who looks on."""
    shell = sys.modules.get("IPython")
    return shell is not None and getattr(shell.get_ipython(), "kernel", None) is not None


def _is_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()
