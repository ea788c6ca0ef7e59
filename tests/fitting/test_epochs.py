"""Of a training at hand: how far it is, in words."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gmlfm.fitting.epochs import EpochProgress, epochs_told
from gmlfm.progress import watched_by
from gmlfm.progress.displays import PlainDisplay
from gmlfm.training.trainer import EpochReport, NullObserver
from tests.progress.clocks import FakeClock


class Training:
    """A trainer whose epochs take as long as the test says, and gain where it says."""

    def __init__(self, epochs: int = 50, patience: int = 5, is_validated: bool = True) -> None:
        self.clock = FakeClock()
        self.trainer: Any = SimpleNamespace(epoch=0, best_epoch=0, patience=patience, options=SimpleNamespace(epochs=epochs))
        self.progress = EpochProgress(self.trainer, is_validated, NullObserver(), self.clock)

    def trains(self, n_epochs: int, seconds: float, *, gains: bool) -> None:
        for _ in range(n_epochs):
            self.clock.passes(seconds)
            self.trainer.epoch += 1
            if gains:
                self.trainer.best_epoch = self.trainer.epoch
            self.progress.on_epoch(EpochReport(self.trainer.epoch, 0.5, {}, gains, seconds, 1.0), self.trainer)

    @property
    def words(self) -> str:
        return self.progress.words(self.clock())


def test_the_epoch_the_patience_and_the_time_until_it_ends() -> None:
    training = Training()
    assert training.words == "epoch 1 of at most 50, 0 without gain of 5"
    training.trains(1, 200, gains=True)  # with compiling
    training.trains(7, 120, gains=True)
    training.trains(3, 120, gains=False)
    assert training.words == "epoch 12 of at most 50, 3 without gain of 5, about 4 min left if no gain"
    training.clock.passes(60)
    assert training.words.endswith("about 3 min left if no gain")


def test_the_last_epoch_is_an_end_without_an_if() -> None:
    training = Training(epochs=10)
    training.trains(8, 30, gains=True)
    assert training.words == "epoch 9 of at most 10, 0 without gain of 5, about 1 min left"
    training.trains(2, 30, gains=True)
    assert training.words == "epoch 10 of at most 10, 0 without gain of 5"


def test_the_first_epoch_counts_only_while_it_is_alone() -> None:
    training = Training(epochs=3)
    training.trains(1, 600, gains=True)
    assert training.words.endswith("about 20 min left")
    training.trains(1, 30, gains=True)
    assert training.words.endswith("about 30 s left")


def test_a_refit_has_so_many_epochs() -> None:
    training = Training(epochs=12, is_validated=False)
    training.trains(2, 60, gains=True)
    assert training.words == "epoch 3 of 12, about 10 min left"


def test_within_the_first_epoch_the_time_left_is_that_of_the_epoch() -> None:
    training = Training()
    training.clock.passes(60)
    training.progress.on_step(100, 400, 0.5)
    assert training.words == "epoch 1 of at most 50, 0 without gain of 5, about 3 min left of this epoch"
    assert (training.progress.activity.done, training.progress.activity.total) == (100, 400)


def test_validation_is_told_and_handed_on() -> None:
    training = Training()
    during: list[str] = []

    def validate(model: Any) -> dict[str, float]:
        during.append(training.words)
        return {"hr@10": 0.5}

    assert training.progress.validated(validate)(None) == {"hr@10": 0.5}  # type: ignore[arg-type]
    assert during == ["epoch 1 of at most 50, 0 without gain of 5, validating"]
    assert "validating" not in training.words
    with pytest.raises(KeyError):
        training.progress.validated(lambda model: {}["hr@10"])(None)  # type: ignore[arg-type]
    assert "validating" not in training.words


def test_events_are_handed_on_and_the_activity_ends() -> None:
    training, events = Training(), []

    class Observer:
        def on_step(self, *event: Any) -> None:
            events.append(event)

        def on_epoch(self, report: EpochReport, trainer: Any) -> None:
            events.append(report.epoch)

    display = PlainDisplay(SimpleNamespace(), training.clock)  # type: ignore[arg-type]
    with watched_by(display), epochs_told(training.trainer, None, Observer(), training.clock) as (validate, observer):
        assert validate is None
        assert callable(display.activities[0].words)
        observer.on_step(1, 2, 0.5)
        observer.on_epoch(EpochReport(1, 0.5, {}, True, 1.0, 1.0), training.trainer)
    assert events == [(1, 2, 0.5), 1]
    assert display.activities == []
