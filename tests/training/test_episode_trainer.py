"""Training of episodic models: the trainer runs their epochs, the model the users."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gmlfm.errors import DataError
from gmlfm.models.base import Floats, Ints, Ratings, UserSide
from gmlfm.models.episodic import EpisodicModel, Progress
from gmlfm.training.episode_trainer import EpisodeTrainer
from gmlfm.training.options import TrainingOptions
from gmlfm.training.trainer import NullObserver


class MeanModel(EpisodicModel):
    """Predicts the mean label, approached by half of the way each epoch."""

    def __init__(self) -> None:
        self.mean = torch.zeros(())
        self.epochs: list[int] = []

    def run_epoch(self, ratings: Ratings, number: int, report: Progress) -> float:
        self.epochs.append(number)
        loss = float(np.mean((ratings.labels - float(self.mean)) ** 2))
        self.mean += 0.5 * (float(ratings.labels.mean()) - self.mean)
        report(2, 2, loss)
        return loss

    def score_all(self, users: UserSide, items: Ints) -> Floats:
        return np.full((len(users), len(items)), float(self.mean), np.float32)

    def state_dict(self) -> dict[str, Tensor]:
        return {"mean": self.mean}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self.mean = state["mean"].clone()


RATINGS = Ratings(np.array([0, 0, 1], np.int32), np.array([0, 1, 1], np.int32), np.array([4.0, 4.0, 4.0], np.float32))


def test_epochs_are_numbered_and_progress_is_handed_on() -> None:
    steps: list[Any] = []

    class Watch(NullObserver):
        def on_step(self, done: int, total: int, loss: float) -> None:
            steps.append((done, total, loss))

    model = MeanModel()
    trainer = EpisodeTrainer(model, RATINGS, TrainingOptions(epochs=3))
    trainer.fit(None, "-rmse", Watch())
    assert model.epochs == [0, 1, 2]
    assert steps == [(2, 2, 16.0), (2, 2, 4.0), (2, 2, 1.0)]
    assert trainer.n_instances == 3
    assert float(model.mean) == 3.5


def test_the_best_epochs_weights_come_back_though_the_model_changes_its_own_in_place() -> None:
    results = iter((3.0, 1.0, 2.0, 5.0))
    model = MeanModel()
    trainer = EpisodeTrainer(model, RATINGS, TrainingOptions(epochs=9, patience=2))
    trainer.fit(lambda model: {"rmse": next(results)}, "-rmse", NullObserver())
    assert (trainer.epoch, trainer.best_epoch, float(model.mean)) == (4, 2, 3.0)


def test_no_epoch_is_no_model() -> None:
    with pytest.raises(DataError, match="epochs is 0, and a model without an epoch predicts nothing; ask for 1 or more"):
        EpisodeTrainer(MeanModel(), RATINGS, TrainingOptions(epochs=0)).fit(None, "-rmse", NullObserver())
