"""One trial: settings trained and validated, until it is done or the study's seconds are over."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gmlfm.errors import GmlfmError, OptionError
from gmlfm.evaluation.metrics import default_metric
from gmlfm.recommender import Recommender
from gmlfm.training.trainer import DivergedError, EpochReport, Resumable
from gmlfm.tuning.budget import Cost, Finals
from gmlfm.tuning.search import Search


@dataclass(frozen=True)
class TrialResult:
    """error: why there is no validation figure."""

    cost: Cost
    validation: dict[str, float] = field(default_factory=dict)
    error: str = ""


def run_trial(search: Search, chosen: Mapping[str, Any], seconds: float | None, finals: Finals | None) -> TrialResult:
    """Trained for at most so many seconds: a trial that they end counts by its best epoch, and fails without a whole one.

    finals: also measure how long their test takes.
    """
    started = time.perf_counter()
    clock = Clock(seconds)
    try:
        recommender = search.recommender(chosen)
        try:
            recommender.fit(search.data, search.split, split_options=search.split_options, observer=clock)
            validation = _validated(recommender, search)
        except DivergedError:
            if not clock.best:
                raise
            validation = clock.best
        except OutOfTimeError:
            validation, clock.is_over = clock.best, True
            if not validation:
                return TrialResult(Cost(time.perf_counter() - started), error="the budget ended before the first epoch did")
        return TrialResult(_cost(recommender, clock, time.perf_counter() - started, finals), validation)
    except OptionError:
        raise  # wrong use fails every trial alike
    except GmlfmError as error:
        return TrialResult(clock.cost(time.perf_counter() - started), error=str(error))


def _cost(recommender: Recommender, clock: Clock, seconds: float, finals: Finals | None) -> Cost:
    cost = clock.cost(seconds)
    if finals is None or not recommender.is_fitted:
        return cost
    split, started = recommender.fitted.split, time.perf_counter()
    is_on_test = recommender.settings.as_published  # which validates there; its validation rows are trained on
    recommender.evaluate(protocol=finals.protocol, part="test" if is_on_test else "validation")
    measuring = time.perf_counter() - started
    test_seconds = measuring if is_on_test else measuring * len(split.test) / len(split.validation)
    n_train, n_validation = len(split.train), len(split.validation)
    rows_ratio = (n_train + n_validation) / n_train
    return replace(cost, rows_ratio=rows_ratio, test_seconds=test_seconds, measuring_seconds=measuring)


def _validated(recommender: Recommender, search: Search) -> dict[str, float]:
    validation = recommender.fitted.validation
    if not validation:
        raise OptionError(f"the split '{search.split}' holds out no validation rows, so nothing can be chosen on them.")
    return _choosing(validation)


def _choosing(metrics: Mapping[str, float]) -> dict[str, float]:
    """The metrics by which settings are chosen and shown."""
    names = (default_metric("hr"), default_metric("ndcg"), "rmse", "mae")
    return {name: metrics[name] for name in names if name in metrics}


class OutOfTimeError(Exception):
    """The study's seconds are over in the middle of a trial."""


class Clock:
    """Keeps the best epoch's validation, and stops a trial when the budget is spent: what it had reached counts."""

    def __init__(self, seconds: float | None) -> None:
        self._end = None if seconds is None else time.perf_counter() + seconds
        self.best: dict[str, float] = {}
        self.best_epoch = 0
        self.is_over = False  # the seconds ended the trial
        self._epoch_seconds: list[float] = []

    @property
    def epochs(self) -> int:
        return len(self._epoch_seconds)

    def cost(self, seconds: float) -> Cost:
        """Of a trial that took so many seconds in all."""
        first, *others = self._epoch_seconds or [0.0]
        warm_up = max(0.0, first - float(np.median(others))) if others else 0.0
        return Cost(seconds, self.epochs, self.best_epoch, warm_up, is_cut_short=self.is_over)

    def on_step(self, done: int, total: int, loss: float) -> None:
        if self._end is not None and time.perf_counter() > self._end:
            raise OutOfTimeError

    def on_epoch(self, report: EpochReport, trainer: Resumable) -> None:
        self._epoch_seconds.append(report.seconds)
        if report.best:
            self.best, self.best_epoch = _choosing(report.validation), report.epoch
