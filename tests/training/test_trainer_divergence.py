"""When the training loop counts a training as diverged, and what it keeps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from gmlfm.errors import DataError, NotFiniteError
from gmlfm.models.base import Model
from gmlfm.training.probe import Reading
from gmlfm.training.trainer import DivergedError, NullObserver, Observer
from tests.training.test_trainer import CountingTrainer, Recorder, scripted


class ScriptedTrainer(CountingTrainer):
    """Epochs with the given mean losses and, at their ends, the given losses on the sample; the start is 1.

    weights: what is put into the weights in an epoch, by its number from 1.
    """

    def __init__(
        self, means: list[float], ends: list[float], weights: Mapping[int, float] | None = None, **options: Any
    ) -> None:
        super().__init__(**{"epochs": len(means), "patience": 9, "lr": 0.5, **options})
        self._means, self._ends, self._bad_weights = means, ends, weights or {}
        self.constant_epoch = 0

    def run_epoch(self, observer: Observer) -> float:
        super().run_epoch(observer)
        if self.epoch == 0:
            self.start_loss = 1.0
        self._weights["w"][0] = self._bad_weights.get(self.epoch + 1, self.epoch + 1)
        return self._means[self.epoch]

    def probe(self) -> Reading:
        return Reading(self._ends[self.epoch], is_constant=self.epoch + 1 == self.constant_epoch)


LOWER = r"; lower lr \(now 0.5\).$"


def test_weights_that_are_not_finite_after_the_last_step_lose_no_earlier_epoch() -> None:
    """The losses of their epoch were numbers."""
    trainer, recorder = ScriptedTrainer([0.9] * 5, [0.8] * 5, {3: float("inf")}), Recorder()
    trainer.fit(scripted(1.0, 2.0), "ndcg@10", recorder)  # the third epoch is not even validated
    assert trainer.diverged == "the weights of epoch 2 are kept: weights are not finite after epoch 3; lower lr (now 0.5)."
    assert (trainer.epoch, trainer.best_epoch, trainer.weights()["w"].tolist()) == (2, 2, [2, 2])
    assert [report.epoch for report in recorder.reports] == [1, 2]
    with pytest.raises(DivergedError, match=f"^nothing was learned: weights are not finite after epoch 1{LOWER}"):
        ScriptedTrainer([0.9], [0.8], {1: float("nan")}).fit(None, "", NullObserver())


def test_a_validation_that_meets_scores_that_are_no_numbers_ends_training() -> None:
    def validate(model: Model) -> dict[str, float]:
        if trainer.epoch == n_good:
            raise NotFiniteError("a score is no number")
        return {"ndcg@10": 1.0}

    n_good, trainer = 2, ScriptedTrainer([0.9] * 5, [0.8] * 5)
    trainer.fit(validate, "ndcg@10", NullObserver())
    assert trainer.diverged == "the weights of epoch 1 are kept: a score is not finite after epoch 3; lower lr (now 0.5)."
    assert trainer.weights()["w"].tolist() == [1, 1]
    n_good, trainer = 0, ScriptedTrainer([0.9] * 5, [0.8] * 5)
    with pytest.raises(DivergedError, match=f"^nothing was learned: a score is not finite after epoch 1{LOWER}"):
        trainer.fit(validate, "ndcg@10", NullObserver())


def test_another_error_of_validation_is_no_divergence() -> None:
    def validate(model: Model) -> dict[str, float]:
        raise DataError("no candidates")

    with pytest.raises(DataError, match=r"^no candidates$"):
        ScriptedTrainer([0.9], [0.8]).fit(validate, "ndcg@10", NullObserver())


ABOVE = "is above the 1 that it started from; lower lr (now 0.5)."


@pytest.mark.parametrize("has_validation", [True, False])
def test_a_loss_above_its_start_ends_training_when_patience_does(has_validation: bool) -> None:
    trainer, recorder = ScriptedTrainer([1.0] * 9, [0.9, 0.8, 70.0, 50.0, 60.0, 0.1, 0.1, 0.1, 0.1], patience=3), Recorder()
    trainer.fit(scripted(*range(9)) if has_validation else None, "ndcg@10", recorder)
    assert trainer.diverged == f"the weights of epoch 2 are kept: the loss after epoch 5 {ABOVE}"
    assert (trainer.epoch, trainer.weights()["w"].tolist()) == (5, [2, 2])
    assert [report.best for report in recorder.reports] == [True, True, False, False, False]
    trainer = ScriptedTrainer([1.0] * 9, [2.0] * 9, patience=2)
    with pytest.raises(DivergedError) as caught:
        trainer.fit(scripted(*range(9)) if has_validation else None, "ndcg@10", NullObserver())
    assert str(caught.value) == f"nothing was learned: the loss after epoch 2 {ABOVE}"


def test_the_last_epoch_says_whether_training_diverged() -> None:
    trainer = ScriptedTrainer([1.0] * 2, [0.9, 7.0])
    trainer.fit(scripted(1.0, 2.0), "ndcg@10", NullObserver())
    assert trainer.diverged == f"the weights of epoch 1 are kept: the loss after epoch 2 {ABOVE}"
    with pytest.raises(DivergedError, match=r"^nothing was learned: the loss after epoch 1 is above"):
        ScriptedTrainer([1.0], [7.0]).fit(scripted(9.0), "ndcg@10", NullObserver())


@pytest.mark.parametrize(
    ("ends", "is_best"),
    [
        ([5.0, 9.0, 0.9], [False, False, True]),  # the first steps were far off
        ([1.05, 1.05, 1.05], [True, True, True]),  # there is nothing to be learned
    ],
)
def test_training_that_comes_back_or_stands_still_is_left_alone(ends: list[float], is_best: list[bool]) -> None:
    trainer, recorder = ScriptedTrainer([1.0] * 3, ends, patience=3), Recorder()
    trainer.fit(scripted(9.0, 10.0, 11.0), "ndcg@10", recorder)
    assert (trainer.epoch, trainer.best_epoch, trainer.diverged) == (3, 3, "")
    assert [report.best for report in recorder.reports] == is_best


def test_scores_that_are_all_the_same_end_training() -> None:
    trainer = ScriptedTrainer([0.9] * 4, [0.8] * 4)
    trainer.constant_epoch = 3
    trainer.fit(scripted(1.0, 2.0, 9.0), "ndcg@10", NullObserver())
    reason = "all items have the same score after epoch 3; lower lr (now 0.5)."
    assert trainer.diverged == f"the weights of epoch 2 are kept: {reason}"
    trainer = ScriptedTrainer([0.9] * 4, [0.8] * 4)
    trainer.constant_epoch = 1
    with pytest.raises(DivergedError, match=f"^nothing was learned: all items have the same score after epoch 1{LOWER}"):
        trainer.fit(scripted(1.0), "ndcg@10", NullObserver())


def test_a_loss_of_the_sample_that_is_no_number_ends_training() -> None:
    with pytest.raises(DivergedError, match=f"^nothing was learned: the loss is inf after epoch 1{LOWER}"):
        ScriptedTrainer([0.9], [float("inf")]).fit(None, "", NullObserver())


def test_warm_epochs_have_another_loss_than_the_start() -> None:
    trainer = ScriptedTrainer([9.0, 9.0, 0.9], [9.0, 9.0, 0.8], warm_epochs=2)
    trainer.fit(scripted(1.0, 1.0, 1.0), "ndcg@10", NullObserver())
    assert (trainer.epoch, trainer.best_epoch, trainer.diverged) == (3, 3, "")


def test_a_checkpoint_keeps_the_start_and_an_old_one_has_none() -> None:
    trainer = ScriptedTrainer([0.9, 9.0], [0.8, 9.0], epochs=1)
    trainer.fit(None, "", NullObserver())
    tensors, numbers = trainer.state()
    resumed = ScriptedTrainer([0.9, 9.0], [0.8, 9.0])
    resumed.load_state(tensors, numbers)
    resumed.fit(None, "", NullObserver())
    assert resumed.diverged == f"the weights of epoch 1 are kept: the loss after epoch 2 {ABOVE}"
    again = ScriptedTrainer([0.9, 9.0], [0.8, 9.0])
    again.load_state(*resumed.state())
    again.fit(None, "", NullObserver())
    assert again.diverged == resumed.diverged  # though no epoch was left to run
    of_earlier_version = ScriptedTrainer([0.9, 9.0], [0.8, 9.0])
    of_earlier_version.load_state(tensors, {name: value for name, value in numbers.items() if name != "start_loss"})
    of_earlier_version.fit(None, "", NullObserver())
    assert (of_earlier_version.epoch, of_earlier_version.diverged) == (2, "")
