"""Training of episodic models: the trainer runs their epochs, the model the users."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gmlfm.errors import DataError, NotFiniteError
from gmlfm.models.base import Floats, Ints, Ratings, UserSide
from gmlfm.models.episodic import EpisodicModel, Progress
from gmlfm.training.episode_trainer import EpisodeTrainer
from gmlfm.training.options import TrainingOptions
from gmlfm.training.trainer import DivergedError, NullObserver


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


VARIED = Ratings(np.array([0, 0, 1], np.int32), np.array([0, 1, 1], np.int32), np.array([4.0, 2.0, 3.0], np.float32))


class DivergingModel(MeanModel):
    """From epoch `bad` on (from 0) it raises, or has the given loss."""

    def __init__(self, bad: int, loss: float | None = None) -> None:
        super().__init__()
        self._bad, self._bad_loss = bad, loss

    def run_epoch(self, ratings: Ratings, number: int, report: Progress) -> float:
        loss = super().run_epoch(ratings, number, report)
        if number < self._bad:
            return loss
        if self._bad_loss is None:
            raise NotFiniteError("the loss of a user is not finite; lower local_lr.")
        return self._bad_loss


def test_a_loss_that_is_not_finite_ends_training_and_keeps_the_best_epoch() -> None:
    model = DivergingModel(bad=2)
    trainer = EpisodeTrainer(model, VARIED, TrainingOptions(epochs=5))
    trainer.fit(None, "", NullObserver())
    assert trainer.diverged == "the weights of epoch 2 are kept: the loss of a user is not finite; lower local_lr."
    assert float(model.mean) == 2.25
    with pytest.raises(DivergedError, match=r"^nothing was learned: the loss of a user is not finite; lower local_lr.$"):
        EpisodeTrainer(DivergingModel(bad=0), VARIED, TrainingOptions()).fit(None, "", NullObserver())


def test_a_loss_far_above_the_first_users_is_no_noise() -> None:
    start = float(np.mean(VARIED.labels**2))
    trainer = EpisodeTrainer(DivergingModel(1, 21 * start), VARIED, TrainingOptions(epochs=5))
    trainer.fit(None, "", NullObserver())
    assert trainer.epoch == 4  # after the three of its patience
    assert trainer.start_loss == pytest.approx(start)
    assert trainer.diverged.endswith("after epoch 4 is above the 9.667 that it started from; lower lr (now 0.003).")
    noisy = EpisodeTrainer(DivergingModel(1, 15 * start), VARIED, TrainingOptions(epochs=5))
    noisy.fit(None, "", NullObserver())
    assert (noisy.epoch, noisy.diverged) == (5, "")


@pytest.mark.parametrize(
    ("scores", "reason"),
    [
        ([3.0, 3.0, 3.0], "all items have the same score after epoch 1"),
        ([3.0, np.nan, 2.0], "a score is not finite after epoch 1"),
        ([3.0, 3.0, 3.1], ""),
    ],
)
def test_scores_of_some_ratings_are_looked_at(scores: list[float], reason: str) -> None:
    trainer = EpisodeTrainer(MeanModel(), VARIED, TrainingOptions(epochs=1), lambda: np.array(scores, np.float32))
    if reason:
        with pytest.raises(DivergedError, match=f"^nothing was learned: {reason}; lower lr"):
            trainer.fit(None, "", NullObserver())
    else:
        trainer.fit(None, "", NullObserver())
    same_labels = EpisodeTrainer(MeanModel(), RATINGS, TrainingOptions(epochs=1), lambda: np.array(scores, np.float32))
    same_labels.fit(None, "", NullObserver())  # where a constant is right


def test_scores_that_the_model_refuses_are_a_divergence() -> None:
    def refuse() -> Floats:
        raise NotFiniteError("the score of a user is not finite; lower local_lr.")

    with pytest.raises(DivergedError, match=r"^nothing was learned: the score of a user is not finite"):
        EpisodeTrainer(MeanModel(), VARIED, TrainingOptions(), refuse).fit(None, "", NullObserver())
