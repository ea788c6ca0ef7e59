"""Progress on stderr: shown to people, silent for pipes and machines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

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

if TYPE_CHECKING:
    from gmlfm.training.trainer import EpochReport, Resumable


class ProgressReport(Protocol):
    def __call__(self, done: int, total: int | None, description: str = "", /) -> None: ...


@contextmanager
def steps() -> Iterator[Callable[[str, int, int], None]]:
    """A bar whose title follows the current step."""
    with bar("") as report:
        yield lambda title, done, total: report(done, total, title)


@contextmanager
def bar(title: str, *, bytes_: bool = False) -> Iterator[ProgressReport]:
    """A bar whose report takes how much is done and, if known, of how much."""
    console = Console(stderr=True)
    counts = DownloadColumn() if bytes_ else MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), counts, TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=False) as progress:
        task = progress.add_task(title, total=None)

        def report(done: int, total: int | None, description: str = title) -> None:
            progress.update(task, completed=done, total=total, description=description)

        yield report


class TrainingBar:
    """An observer of training: a bar within an epoch, and a line of text for each."""

    def __init__(self, console: Console) -> None:
        self._console = console
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[loss]}"), TimeElapsedColumn())
        self._progress = Progress(*columns, console=console, disable=not console.is_terminal, transient=True)
        self._task = self._progress.add_task("epoch 1", total=None, loss="")

    def __enter__(self) -> TrainingBar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def on_step(self, done: int, total: int, loss: float) -> None:
        self._progress.update(self._task, completed=done, total=total, loss=f"loss {loss:.4f}")

    def on_epoch(self, report: EpochReport, trainer: Resumable) -> None:
        metrics = "  ".join(f"{name} {value:.4f}" for name, value in report.validation.items())
        best = "  best so far" if report.best and report.validation else ""
        speed = f"{report.instances_per_second / 1e3:.0f} k instances/s"
        self._console.print(
            f"epoch {report.epoch:>3}  loss {report.loss:.4f}  {metrics}  {speed}{best}", highlight=False, soft_wrap=True
        )
        self._progress.update(self._task, description=f"epoch {report.epoch + 1}", completed=0)
