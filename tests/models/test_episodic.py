from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gmlfm.models.base import FitInputs, FitReport, Floats, Inputs, Ints, Ratings, UserSide
from gmlfm.models.episodic import EpisodicModel, Progress
from tests.models.slow_loops import inputs_of, users_of


class MeanLabel(EpisodicModel):
    """Learns the mean label of an epoch's ratings; no more than an episodic model must write."""

    def __init__(self) -> None:
        self.mean, self.attached = 0.0, False

    def attach(self, inputs: FitInputs) -> None:
        self.attached = True

    def run_epoch(self, ratings: Ratings, number: int, report: Progress) -> float:
        self.mean = float(ratings.labels.mean())
        report(1, 1, 0.5)
        return 0.5

    def score_all(self, users: UserSide, items: Ints) -> Floats:
        return np.full((len(users), len(items)), self.mean, np.float32)

    def state_dict(self) -> dict[str, Tensor]:
        return {"mean": torch.tensor(self.mean)}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self.mean = float(state["mean"])


def test_it_is_attached_and_trained_user_by_user_by_the_plan() -> None:
    class Plan:
        def train(self, model: Any, inputs: FitInputs) -> FitReport:
            raise AssertionError("an episodic model is not trained over batches")

        def train_episodes(self, model: Any, inputs: FitInputs) -> FitReport:
            assert model.attached
            losses: list[tuple[int, int, float]] = []
            loss = model.run_epoch(inputs.ratings(), 0, lambda *progress: losses.append(progress))
            assert losses == [(1, 1, loss)]
            return FitReport(best_epoch=1)

    model = MeanLabel()
    assert model.fit(inputs_of(), Plan()).best_epoch == 1
    np.testing.assert_array_equal(model.score_pairs(users_of([0, -1]), np.zeros((2, 2), np.int32)), np.ones((2, 2)))


def test_what_it_can_do_it_says_itself() -> None:
    assert MeanLabel.tasks == {"rating"}
    assert MeanLabel.inputs == Inputs(attributes=True, labels=True)
    assert MeanLabel.learns_in_epochs
    assert MeanLabel.newcomers() == "attributes, and adapts to first ratings"
