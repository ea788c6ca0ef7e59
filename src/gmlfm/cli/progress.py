"""Training for people: a line for each epoch. What is under way in the meantime, gmlfm.progress shows on standard error."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:
    from gmlfm.training.trainer import EpochReport, Resumable


class EpochLines:
    """An observer of training that prints a line for each epoch."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def on_step(self, done: int, total: int, loss: float) -> None:
        pass

    def on_epoch(self, report: EpochReport, trainer: Resumable) -> None:
        metrics = "  ".join(f"{name} {value:.4f}" for name, value in report.validation.items())
        best = "  best" if report.best and report.validation else ""
        speed = f"{report.instances_per_second / 1e3:.0f} k instances/s"
        self._console.print(
            f"epoch {report.epoch:>3}  loss {report.loss:.4f}  {metrics}  {speed}{best}", highlight=False, soft_wrap=True
        )
