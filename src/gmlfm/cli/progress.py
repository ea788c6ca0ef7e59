"""Progress bars on stderr: shown to people, silent for pipes and machines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


class Report(Protocol):
    def __call__(self, done: int, total: int | None, description: str = "", /) -> None: ...


@contextmanager
def steps() -> Iterator[Callable[[str, int, int], None]]:
    """One bar whose title follows the step at work."""
    with bar("") as report:
        yield lambda title, done, total: report(done, total, title)


@contextmanager
def bar(title: str, *, bytes_: bool = False) -> Iterator[Report]:
    """A bar whose report takes how much is done and, if known, of how much."""
    console = Console(stderr=True)
    counts = DownloadColumn() if bytes_ else MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), counts, TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=False) as progress:
        task = progress.add_task(title, total=None)

        def report(done: int, total: int | None, description: str = title) -> None:
            progress.update(task, completed=done, total=total, description=description)

        yield report
