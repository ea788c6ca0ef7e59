"""What a search may cost: so many trials, or so many seconds, which may have to last for the final trainings as well."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gmlfm.errors import OptionError

LEAST_TRIALS = 3  # of each method of a comparison, whatever its seconds


@dataclass(frozen=True)
class Cost:
    """What a trial took. epochs, best_epoch: 0 where the model is fitted at once; warm_up: what the first epoch took more than
    the others, as a process compiles its kernels once; rows_ratio: rows of a refit to training rows; test_seconds: how long
    testing takes, measured on the validation part in measuring_seconds. 0: not known. is_cut_short: the seconds ended it."""

    seconds: float
    epochs: int = 0
    best_epoch: int = 0
    warm_up: float = 0.0
    rows_ratio: float = 0.0
    test_seconds: float = 0.0
    measuring_seconds: float = 0.0
    is_cut_short: bool = False

    @property
    def spent(self) -> float:
        return self.seconds + self.measuring_seconds

    @property
    def when_warm(self) -> float:
        """What the same trial takes later in the process."""
        return self.seconds - self.warm_up

    @property
    def to_first_figure(self) -> float:
        """Seconds until a trial has a validation figure: an epoch, or the whole of a fit at once."""
        return self.when_warm / max(self.epochs, 1)


@dataclass(frozen=True)
class Finals:
    """The trainings after a search: of the best settings with so many seeds, each perhaps with a refit, each then tested."""

    seeds: int
    refit: bool
    protocol: str

    def seconds(self, best: Cost, costs: Sequence[Cost]) -> float:
        """An estimate from the best trial: seeds x (training + refit + test).

        A training takes what the trial took; a refit `rows_ratio x best_epoch / epochs` of that. What is fitted at once is
        fitted on the rows of the refit alone.
        """
        rows_ratio = max((cost.rows_ratio for cost in costs), default=0.0) or 1.0
        if not self.refit:
            trainings = 1.0
        elif best.epochs == 0:
            trainings = rows_ratio
        else:
            trainings = 1.0 + rows_ratio * best.best_epoch / best.epochs
        return self.seeds * (trainings * best.when_warm + max((cost.test_seconds for cost in costs), default=0.0))


@dataclass(frozen=True)
class Budget:
    """Trials or seconds, one of the two. finals: what the seconds have to cover beside the trials."""

    trials: int | None = None
    seconds: float | None = None
    finals: Finals | None = None

    def __post_init__(self) -> None:
        if (self.trials is None) == (self.seconds is None):
            raise OptionError("a budget is either trials or seconds; give one of them.")
        if (self.trials is not None and self.trials < 1) or (self.seconds is not None and not self.seconds > 0):
            raise OptionError("a budget of trials or seconds must be above 0.")

    def is_least(self, n_trials: int) -> bool:
        """Whether the next trial is one of those that a method of a comparison gets in any case, and whole."""
        return self.seconds is not None and self.finals is not None and n_trials < LEAST_TRIALS

    def seconds_left(self, costs: Sequence[Cost], best: Cost | None) -> float | None:
        """Seconds for further trials, those of the final trainings set apart; None where seconds do not matter."""
        if self.seconds is None:
            return None
        left = self.seconds - sum(cost.spent for cost in costs)
        return left if self.finals is None or best is None else left - self.finals.seconds(best, costs)

    def allows(self, costs: Sequence[Cost], best: Cost | None) -> bool:
        """Whether there is enough for another trial: by seconds, for as much of it as has a figure."""
        if self.trials is not None:
            return len(costs) < self.trials
        if self.is_least(len(costs)):
            return True
        left = self.seconds_left(costs, best)
        needed = float(np.mean([cost.to_first_figure for cost in costs])) if costs else 0.0
        return left is not None and left > needed

    def needed(self, costs: Sequence[Cost], best: Cost, n_points: float) -> float:
        """Seconds that the least trials and the final trainings take, by the trials so far. n_points: of the search space."""
        trial = float(np.mean([cost.when_warm for cost in costs]))
        extra = sum(cost.measuring_seconds + cost.warm_up for cost in costs)
        finals = self.finals.seconds(best, costs) if self.finals is not None else 0.0
        return min(LEAST_TRIALS, n_points) * trial + extra + finals
