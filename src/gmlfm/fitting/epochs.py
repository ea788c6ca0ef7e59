"""How far a training is: 'epoch 12 of at most 50, 3 without gain of 5, about 4 min left if no gain'."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from gmlfm.models.base import Model
from gmlfm.progress import Activity, activity
from gmlfm.progress.wording import time_left
from gmlfm.training.trainer import EpochReport, Observer, Resumable, Trainer, Validate


class EpochProgress:
    """An observer that tells an activity how far the training is, and hands on to another observer.

    Early stopping is the earliest end and the last epoch the latest: the time left is until whichever comes sooner, and where
    that is early stopping, it holds only as long as validation does not improve.
    """

    def __init__(self, trainer: Trainer, is_validated: bool, observer: Observer, clock: Callable[[], float]) -> None:
        self._trainer, self._observer, self._clock = trainer, observer, clock
        self._patience = trainer.patience if is_validated else None
        self.activity = Activity("")
        self._seconds: list[float] = []  # of each epoch, its validation and checkpoint included
        self._started = clock()
        self._is_validating = False

    def words(self, now: float) -> str:
        trainer, most = self._trainer, self._trainer.options.epochs
        number = min(trainer.epoch + 1, most)
        n_left, parts = most - trainer.epoch, [f"epoch {number} of {'at most ' if self._patience else ''}{most}"]
        is_open = False
        if self._patience:
            n_without_gain = trainer.epoch - trainer.best_epoch
            parts.append(f"{n_without_gain} without gain of {self._patience}")
            is_open = self._patience - n_without_gain < n_left
            n_left = min(n_left, self._patience - n_without_gain)
        if self._is_validating:
            parts.append("validating")
        elif self._seconds and n_left > 0:
            left = n_left * self._seconds_per_epoch() - (now - self._started)
            parts.append(time_left(left) + (" if no gain" if is_open else ""))
        elif self.activity.done and self.activity.total:
            left = (now - self._started) * (self.activity.total - self.activity.done) / self.activity.done
            parts.append(f"{time_left(left)} of this epoch")
        return ", ".join(parts)

    def _seconds_per_epoch(self) -> float:
        """The first epoch compiles kernels, so it counts only while it is alone."""
        return statistics.median(self._seconds[1:] or self._seconds)

    def validated(self, validate: Validate) -> Validate:
        def wrapped(model: Model) -> Mapping[str, float]:
            self._is_validating = True
            try:
                return validate(model)
            finally:
                self._is_validating = False

        return wrapped

    def on_step(self, done: int, total: int, loss: float) -> None:
        self.activity.update(done, total)
        self._observer.on_step(done, total, loss)

    def on_epoch(self, report: EpochReport, trainer: Resumable) -> None:
        self._observer.on_epoch(report, trainer)
        self.activity.update()
        now = self._clock()
        self._seconds.append(now - self._started)
        self._started = now


@contextmanager
def epochs_told(
    trainer: Trainer, validate: Validate | None, observer: Observer, clock: Callable[[], float] = time.monotonic
) -> Iterator[tuple[Validate | None, Observer]]:
    """What to train with, so that whoever watches sees how far it is."""
    progress = EpochProgress(trainer, validate is not None, observer, clock)
    with activity(progress.words) as progress.activity:
        yield validate and progress.validated(validate), progress
