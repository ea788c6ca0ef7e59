"""Models that learn user by user: a user is a task, adapted to on the few ratings that they gave."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar

from gmlfm.models.base import FitInputs, FitReport, Inputs, Model, Plan, Ratings

Progress = Callable[[int, int, float], None]  # users done, users in all, mean loss so far


class EpisodicModel(Model):
    """Write `run_epoch`, `score_all`, `state_dict` and `load_state_dict`; the trainer does the rest."""

    tasks: ClassVar[frozenset[str]] = frozenset({"rating"})
    inputs: ClassVar[Inputs] = Inputs(attributes=True, labels=True)
    learns_in_epochs: ClassVar[bool] = True

    @classmethod
    def newcomers(cls) -> str:
        return "attributes, and adapts to first ratings"

    @abstractmethod
    def run_epoch(self, ratings: Ratings, number: int, report: Progress) -> float:
        """One pass over the users of the ratings; returns the mean loss."""

    def fit(self, inputs: FitInputs, plan: Plan) -> FitReport:
        self.attach(inputs)
        return plan.train_episodes(self, inputs)
