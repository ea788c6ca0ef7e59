"""Training of episodic models, whose tasks are users."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from gmlfm.errors import DataError
from gmlfm.models.base import Ratings
from gmlfm.models.episodic import EpisodicModel
from gmlfm.training.options import TrainingOptions
from gmlfm.training.trainer import Observer, Trainer, Validate


class EpisodeTrainer(Trainer):
    def __init__(self, model: EpisodicModel, ratings: Ratings, options: TrainingOptions) -> None:
        super().__init__(model, options)
        self.model, self._ratings = model, ratings

    @property
    def n_instances(self) -> int:
        return len(self._ratings.users)

    def run_epoch(self, observer: Observer) -> float:
        return self.model.run_epoch(self._ratings, self.epoch, observer.on_step)

    def weights(self) -> dict[str, Tensor]:
        return self.model.state_dict()

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        self.model.load_state_dict(weights)

    def fit(self, validate: Validate | None, metric: str, observer: Observer) -> None:
        super().fit(validate, metric, observer)
        if not self.best:
            raise DataError("epochs is 0, and a model without an epoch predicts nothing; ask for 1 or more.")
