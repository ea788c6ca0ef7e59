"""One training loop for every model that learns in epochs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gmlfm.fitting.memory import MemoryPlan
from gmlfm.models.base import FitInputs, Model, UserSide
from gmlfm.models.popularity import Popularity
from gmlfm.training.checkpoint import newest_checkpoint, save_checkpoint
from gmlfm.training.episode_trainer import EpisodeTrainer
from gmlfm.training.options import TrainingOptions
from gmlfm.training.row_trainer import RowTrainer
from gmlfm.training.settings import Settings
from gmlfm.training.trainer import DivergedError, EpochReport, NullObserver, Observer, Resumable, Trainer, Validate
from tests.contracts.checkerboard import checkerboard


class CountingTrainer(Trainer):
    """Its weight is the number of epochs that it was trained for; epoch `bad_epoch` (from 1) has a loss that is no number."""

    def __init__(self, warm_epochs: int = 0, bad_epoch: int = 0, **options: Any) -> None:
        super().__init__(Popularity(), TrainingOptions(**options))
        self._weights, self._warm_epochs, self._bad_epoch = {"w": torch.zeros(2)}, warm_epochs, bad_epoch

    @property
    def n_instances(self) -> int:
        return 10

    @property
    def steps_per_epoch(self) -> int:
        return 1_000

    @property
    def warm_epochs(self) -> int:
        return self._warm_epochs

    def run_epoch(self, observer: Observer) -> float:
        observer.on_step(10, 10, 0.5)
        self._weights["w"] += 1
        if self.epoch + 1 == self._bad_epoch:
            raise DivergedError("the loss became nan")
        return 1.0 / (self.epoch + 1)

    def weights(self) -> dict[str, Tensor]:
        return self._weights

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        self._weights = {name: tensor.clone() for name, tensor in weights.items()}


class Recorder(NullObserver):
    def __init__(self) -> None:
        self.reports: list[EpochReport] = []
        self.steps: list[tuple[int, int, float]] = []

    def on_step(self, done: int, total: int, loss: float) -> None:
        self.steps.append((done, total, loss))

    def on_epoch(self, report: EpochReport, trainer: Resumable) -> None:
        self.reports.append(report)


def scripted(*values: float, metric: str = "ndcg@10") -> Validate:
    """A validation that gives one value after the other."""
    left = list(values)
    return lambda model: {metric: left.pop(0), "hr@10": 0.0}


@pytest.mark.parametrize(
    ("values", "patience", "n_epochs", "best_epoch"),
    [
        ((1.0, 3.0, 2.0, 2.5, 9.0), 2, 4, 2),
        ((1.0, 3.0, 2.0, 2.5, 9.0), 3, 5, 5),
        ((5.0, 5.0, 5.0, 5.0, 5.0), 1, 2, 1),  # no better is not better
        ((1.0, 2.0, 3.0, 4.0, 5.0), 1, 5, 5),
    ],
)
def test_training_stops_without_a_better_result_and_keeps_the_best(
    values: tuple[float, ...], patience: int, n_epochs: int, best_epoch: int
) -> None:
    trainer, recorder = CountingTrainer(epochs=5, patience=patience), Recorder()
    trainer.fit(scripted(*values), "ndcg@10", recorder)
    assert (trainer.epoch, trainer.best_epoch, trainer.best_value) == (n_epochs, best_epoch, values[best_epoch - 1])
    assert trainer.weights()["w"].tolist() == [best_epoch, best_epoch]
    assert [report.epoch for report in recorder.reports] == list(range(1, n_epochs + 1))
    assert [report.best for report in recorder.reports] == [
        values[index] > max(values[:index], default=-1.0) for index in range(n_epochs)
    ]


def test_a_report_has_the_loss_the_results_and_the_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter(range(0, 100, 2))
    monkeypatch.setattr("gmlfm.training.trainer.time.perf_counter", lambda: next(seconds))
    trainer, recorder = CountingTrainer(epochs=2), Recorder()
    trainer.fit(scripted(0.5, 0.6), "ndcg@10", recorder)
    assert recorder.steps == [(10, 10, 0.5)] * 2
    assert recorder.reports[1].to_dict() == {
        "epoch": 2,
        "loss": 0.5,
        "validation": {"ndcg@10": 0.6, "hr@10": 0.0},
        "best": True,
        "seconds": 2,
        "instances_per_second": 5.0,
    }


def test_less_is_better_for_a_metric_with_a_minus() -> None:
    trainer = CountingTrainer(epochs=4, patience=2)
    trainer.fit(scripted(2.0, 1.0, 1.5, 3.0, metric="rmse"), "-rmse", NullObserver())
    assert (trainer.best_epoch, trainer.best_value) == (2, -1.0)


def test_without_validation_every_epoch_is_trained_and_the_last_kept() -> None:
    trainer, recorder = CountingTrainer(epochs=6, patience=1), Recorder()
    trainer.fit(None, "ndcg@10", recorder)
    assert (trainer.epoch, trainer.best_epoch) == (6, 6)
    assert trainer.weights()["w"].tolist() == [6, 6]
    assert all(report.validation == {} for report in recorder.reports)


def test_warm_epochs_are_not_judged_and_cost_no_patience() -> None:
    trainer, recorder = CountingTrainer(warm_epochs=3, epochs=6, patience=2), Recorder()
    trainer.fit(scripted(9.0, 9.0, 9.0, 1.0, 2.0, 1.0), "ndcg@10", recorder)
    assert (trainer.epoch, trainer.best_epoch, trainer.best_value) == (6, 5, 2.0)
    assert [report.best for report in recorder.reports] == [False, False, False, True, True, False]
    short = CountingTrainer(warm_epochs=3, epochs=2, patience=2)
    short.fit(scripted(2.0, 1.0), "ndcg@10", NullObserver())
    assert short.best_epoch == 1  # were no epoch judged, none would be kept


def test_a_loss_that_is_no_number_ends_training_with_the_best_weights() -> None:
    trainer = CountingTrainer(bad_epoch=4, epochs=9, patience=9)
    trainer.fit(scripted(1.0, 3.0, 2.0), "ndcg@10", NullObserver())
    assert (trainer.epoch, trainer.best_epoch, trainer.diverged) == (
        3,
        2,
        "the weights of epoch 2 are kept: the loss became nan",
    )
    assert trainer.weights()["w"].tolist() == [2, 2]
    with pytest.raises(DivergedError, match=r"^nothing was learned: the loss became nan$"):
        CountingTrainer(bad_epoch=1, epochs=9).fit(scripted(), "ndcg@10", NullObserver())


def test_threads_are_set() -> None:
    before = torch.get_num_threads()
    try:
        CountingTrainer(epochs=0, threads=1).fit(None, "", NullObserver())
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


# What follows holds for the trainers of both kinds of model, over the same data.

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "gml-fm": ("topn", {"k": 4, "batch_size": 100, "lr": 0.02}),
    "gml-fm-unit": ("topn", {"k": 4, "batch_size": 100, "lr": 0.02}),
    "gml-fm-unit, with dropout, by the eager engine": ("topn", {"k": 4, "layers": 2, "dropout": 0.2, "batch_size": 200}),
    "fm, by Adagrad": ("topn", {"k": 4, "batch_size": 200, "optimiser": "adagrad"}),
    "mamo": ("rating", {"k": 4, "inner": 1}),
}


@pytest.fixture(scope="module", params=CASES)
def begin(request: pytest.FixtureRequest) -> Any:
    """A function that begins a training of the case anew, with its inputs."""
    task, options = CASES[request.param]
    data = checkerboard()

    def start(**more: Any) -> tuple[Trainer, FitInputs]:
        settings = Settings.make(request.param.split(",")[0], task, {"threads": 1, "seed": 5, **options, **more})
        split = "leave-one-out" if task == "topn" else "random"
        inputs = MemoryPlan(data, settings, split, {}, "cpu").selection_inputs()
        model: Any = settings.build(inputs.layout)
        model.attach(inputs)
        if task == "rating":
            return EpisodeTrainer(model, inputs.ratings(), settings.training), inputs
        return RowTrainer(model, inputs.layout.n_rows, settings.training, inputs.batches()), inputs

    return start


def all_scores(model: Model, inputs: FitInputs) -> np.ndarray:
    users = UserSide(np.arange(5, dtype=np.int32), inputs.encoded.user_side(np.arange(5), None))
    return model.over(inputs.items).score_all(users, np.arange(40, dtype=np.int32))


def test_patience_and_the_best_epoch_for_every_kind_of_model(begin: Any) -> None:
    trainer, inputs = begin(epochs=9, patience=2)
    trainer.fit(scripted(0.1, 0.5, 0.2, 0.3, 0.9), "ndcg@10", NullObserver())
    assert (trainer.epoch, trainer.best_epoch) == (4, 2)
    two_epochs, _ = begin(epochs=2)
    two_epochs.fit(None, "", NullObserver())
    np.testing.assert_array_equal(all_scores(trainer.model, inputs), all_scores(two_epochs.model, inputs))
    one_epoch, _ = begin(epochs=1)
    one_epoch.fit(None, "", NullObserver())
    assert not np.array_equal(all_scores(trainer.model, inputs), all_scores(one_epoch.model, inputs))


def test_validation_sees_the_weights_of_its_epoch(begin: Any) -> None:
    trainer, inputs = begin(epochs=3)
    scores: list[np.ndarray] = []

    def validate(model: Model) -> dict[str, float]:
        scores.append(all_scores(model, inputs))
        return {"ndcg@10": 1.0 / len(scores)}

    trainer.fit(validate, "ndcg@10", NullObserver())
    assert trainer.best_epoch == 1
    np.testing.assert_array_equal(all_scores(trainer.model, inputs), scores[0])
    assert not np.array_equal(scores[0], scores[1])


def test_resumed_from_a_checkpoint_it_goes_on_to_the_same_bits(begin: Any, tmp_path: Path) -> None:
    values = (0.1, 0.5, 0.2, 0.6, 0.3)
    uninterrupted, inputs = begin(epochs=5, patience=9)
    uninterrupted.fit(scripted(*values), "ndcg@10", NullObserver())

    class Interrupted(NullObserver):
        """Writes a checkpoint after each epoch and stops after the third."""

        def on_epoch(self, report: EpochReport, trainer: Resumable) -> None:
            save_checkpoint(tmp_path, *trainer.state())
            if report.epoch == 3:
                raise KeyboardInterrupt

    interrupted, _ = begin(epochs=5, patience=9)
    interrupted.fit(scripted(*values), "ndcg@10", Interrupted())
    assert interrupted.interrupted
    assert interrupted.best_epoch == 2
    assert not uninterrupted.interrupted
    resumed, _ = begin(epochs=5, patience=9)
    checkpoint = newest_checkpoint(tmp_path)
    assert checkpoint is not None
    resumed.load_state(*checkpoint)
    assert (resumed.epoch, resumed.best_epoch, resumed.best_value) == (3, 2, 0.5)
    recorder = Recorder()
    resumed.fit(scripted(*values[3:]), "ndcg@10", recorder)
    assert [report.epoch for report in recorder.reports] == [4, 5]
    (tensors, numbers), (expected, expected_numbers) = resumed.state(), uninterrupted.state()
    assert numbers == expected_numbers
    assert tensors.keys() == expected.keys()
    assert all(torch.equal(tensors[name], tensor) for name, tensor in expected.items())
    np.testing.assert_array_equal(all_scores(resumed.model, inputs), all_scores(uninterrupted.model, inputs))
