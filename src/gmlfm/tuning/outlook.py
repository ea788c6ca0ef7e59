"""How far a search or a comparison is, in words, and how long it will still take.

Words are asked for by another thread: they tell what was noted and never open a study.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from gmlfm.progress.wording import duration, time_left
from gmlfm.tuning.budget import Budget

Clock = Callable[[], float]


class SearchOutlook:
    """'tuning fm: trial 4 of 20, best ndcg@10 0.1263 so far, about 3 min left'"""

    def __init__(self, model: str, metric: str, budget: Budget, clock: Clock = time.monotonic) -> None:
        self._model, self._metric, self._budget, self._clock = model, metric, budget, clock
        self._n_ended, self._spent, self._started = 0, 0.0, clock()
        self._best: float | None = None

    def note(self, n_ended: int, spent: float, best: float | None) -> None:
        """Before each trial: the trials that are over, their seconds, and the best validation figure."""
        self._n_ended, self._spent, self._best, self._started = n_ended, spent, best, self._clock()

    def words(self, now: float) -> str:
        of_all = "" if self._budget.trials is None else f" of {self._budget.trials}"
        parts = [f"tuning {self._model}: trial {self._n_ended + 1}{of_all}"]
        elapsed = now - self._started
        if self._budget.seconds is not None:
            parts.append(f"{duration(self._spent + elapsed)} of {duration(self._budget.seconds)}")
        if self._best is not None:
            parts.append(f"best {self._metric} {self._best:.4f} so far")
        if self._budget.trials is not None and self._n_ended:
            n_left = self._budget.trials - self._n_ended
            parts.append(time_left(n_left * self._spent / self._n_ended - elapsed))
        return ", ".join(parts)


class ComparisonOutlook:
    """'fm, method 2 of 3: training with seed 1 of 3 for the test, about 5 min left'

    share: of each method; trainings_per_seed: 2 where a refit follows the training that chooses.
    """

    def __init__(
        self, models: Sequence[str], share: Budget, seeds: int, trainings_per_seed: float, clock: Clock = time.monotonic
    ) -> None:
        self._models, self._share, self._seeds, self._clock = list(models), share, seeds, clock
        self._trainings_per_seed = trainings_per_seed
        self._n_trials: dict[str, int] = {}
        self._searched: dict[str, tuple[int, float]] = {}
        self._finals: dict[str, list[float]] = {model: [] for model in models}
        self._closed: set[str] = set()
        self._model, self._phase = "", ""
        self._started = clock()

    def most_trials(self, model: str, n_points: float) -> None:
        """A space of few points is tried out before the budget ends."""
        if self._share.trials is not None:
            self._n_trials[model] = int(min(self._share.trials, n_points))

    def begin(self, model: str, phase: str) -> None:
        self._model, self._phase, self._started = model, phase, self._clock()

    def searched(self, model: str, n_trials: int, seconds: float) -> None:
        """The trials that are over, and their seconds."""
        self._searched[model], self._started = (n_trials, seconds), self._clock()

    def tested(self, model: str, seconds: float) -> None:
        """Of a final training with its test."""
        self._finals[model].append(seconds)

    def close(self, model: str) -> None:
        """All of its trainings are tested, or it could not take part."""
        self._closed.add(model)

    def words(self, now: float) -> str:
        if not self._model:
            return "comparing"
        number = self._models.index(self._model) + 1
        text = f"{self._model}, method {number} of {len(self._models)}: {self._phase}"
        left = self._seconds_left()
        return text if left is None else f"{text}, {time_left(left - (now - self._started))}"

    def _seconds_left(self) -> float | None:
        """Of the shares that are not spent; of trials, by what trials took so far. None before anything is known."""
        unfinished = [model for model in self._models if model not in self._closed]
        if self._share.seconds is not None:
            return sum(max(0.0, self._share.seconds - self._spent(model)) for model in unfinished)
        known = {model: seconds / n for model, (n, seconds) in self._searched.items() if n}
        if not known:
            return None
        mean = sum(known.values()) / len(known)
        return sum(self._work_left(model, known.get(model, mean)) for model in unfinished)

    def _spent(self, model: str) -> float:
        return self._searched.get(model, (0, 0.0))[1] + sum(self._finals[model])

    def _work_left(self, model: str, seconds_per_trial: float) -> float:
        """A final training takes what the last ones took; before there is one, what a trial takes, and its refit."""
        n_ended, finals = self._searched.get(model, (0, 0.0))[0], self._finals[model]
        n_trials = 0 if finals else max(0, self._n_trials.get(model, 0) - n_ended)
        seconds_per_final = sum(finals) / len(finals) if finals else self._trainings_per_seed * seconds_per_trial
        return n_trials * seconds_per_trial + max(0, self._seeds - len(finals)) * seconds_per_final
