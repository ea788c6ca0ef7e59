"""Training of episodic models, whose tasks are users."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import ClassVar

import numpy as np
from torch import Tensor

from gmlfm.errors import DataError, NotFiniteError
from gmlfm.models.base import Floats, Ratings
from gmlfm.models.episodic import EpisodicModel
from gmlfm.training.options import TrainingOptions
from gmlfm.training.probe import Reading
from gmlfm.training.trainer import DivergedError, Observer, Trainer, Validate


class EpisodeTrainer(Trainer):
    """sample_scores: the model's scores of some training ratings, to see whether they differ.

    The start is the first progress that the model reports, a mean over few users, hence the width of `most_above_start`.
    """

    most_above_start: ClassVar[float] = 20.0

    def __init__(
        self,
        model: EpisodicModel,
        ratings: Ratings,
        options: TrainingOptions,
        sample_scores: Callable[[], Floats] | None = None,
    ) -> None:
        super().__init__(model, options)
        self.model, self._ratings, self._sample_scores = model, ratings, sample_scores
        self._is_degenerate = bool((ratings.labels == ratings.labels[:1]).all())  # a constant is right
        self._loss = math.nan

    @property
    def n_instances(self) -> int:
        return len(self._ratings.users)

    @property
    def steps_per_epoch(self) -> int:
        """A step adapts to one user."""
        return len(np.unique(self._ratings.users))

    def run_epoch(self, observer: Observer) -> float:
        def report(done: int, total: int, loss: float) -> None:
            if self.epoch == 0 and math.isnan(self.start_loss) and not self._is_degenerate:
                self.start_loss = loss
            observer.on_step(done, total, loss)

        try:
            self._loss = self.model.run_epoch(self._ratings, self.epoch, report)
        except NotFiniteError as error:
            raise DivergedError(str(error)) from error
        return self._loss

    def probe(self) -> Reading:
        """Its loss is the mean of the epoch: one at the end would take a pass over the users."""
        if self._sample_scores is None or self._is_degenerate:
            return Reading(self._loss, is_constant=False)
        try:
            scores = self._sample_scores()
        except NotFiniteError as error:
            raise DivergedError(str(error)) from error
        if not np.isfinite(scores).all():
            raise DivergedError(f"a score is not finite after epoch {self.epoch + 1}; {self._remedy}")
        return Reading(self._loss, len(scores) > 1 and bool((scores == scores[0]).all()))

    def weights(self) -> dict[str, Tensor]:
        return self.model.state_dict()

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        self.model.load_state_dict(weights)

    def fit(self, validate: Validate | None, metric: str, observer: Observer) -> None:
        super().fit(validate, metric, observer)
        if not self.best:
            raise DataError("epochs is 0, and a model without an epoch predicts nothing; ask for 1 or more.")
