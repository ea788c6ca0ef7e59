"""Training of gradient models by rows of their table."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

import gmlfm
from gmlfm import Dataset, Recommender
from gmlfm.errors import OptionError
from gmlfm.fitting.memory import MemoryPlan
from gmlfm.models.fm import FM
from gmlfm.models.gmlfm import GMLFM
from gmlfm.training.engines import choose
from gmlfm.training.engines.eager import EagerEngine
from gmlfm.training.options import TrainingOptions
from gmlfm.training.row_trainer import RowTrainer
from gmlfm.training.sampling.batches import RankingBatches
from gmlfm.training.settings import Settings
from gmlfm.training.trainer import DivergedError, NullObserver
from tests.contracts.checkerboard import checkerboard


@pytest.fixture(scope="module")
def data() -> Dataset:
    return checkerboard()


def begun(data: Dataset, model: str = "gml-fm", **options: Any) -> RowTrainer:
    settings = Settings.make(model, "topn", {"k": 4, "batch_size": 200, "threads": 1, **options})
    inputs = MemoryPlan(data, settings, "leave-one-out", {}, "cpu").selection_inputs()
    built: Any = settings.build(inputs.layout)
    n_rows, field_of_row = inputs.layout.n_rows, inputs.layout.field_of_row()
    return RowTrainer(built, n_rows, settings.training, inputs.batches(), field_of_row=field_of_row)


def test_the_table_is_the_models_drawn_from_the_seed_with_an_empty_padding_row() -> None:
    model = FM(k=3)
    trainer = RowTrainer(model, 20, TrainingOptions(seed=7))
    expected = FM(k=3).initial_rows(20, torch.Generator().manual_seed(7))
    expected[0] = 0.0
    assert torch.equal(trainer.table, expected)
    assert model.table is trainer.table
    assert not torch.equal(RowTrainer(FM(k=3), 20, TrainingOptions(seed=8)).table, expected)


def test_rows_of_another_shape_are_refused() -> None:
    class TooNarrow(FM):
        def initial_rows(self, n: int, generator: torch.Generator) -> Tensor:
            return torch.zeros(n, 2)

    message = r"TooNarrow.initial_rows gave the shape \(20, 2\); expected \(20, 4\), a row of row_width numbers"
    with pytest.raises(OptionError, match=message):
        RowTrainer(TooNarrow(k=3), 20, TrainingOptions())


def test_an_epoch_goes_through_all_instances_and_reports_each_step(data: Dataset) -> None:
    trainer = begun(data, cold_start_rate=0.0, engine="eager")
    steps: list[tuple[int, int, float]] = []

    class Watch(NullObserver):
        def on_step(self, done: int, total: int, loss: float) -> None:
            steps.append((done, total, loss))

    loss = trainer.run_epoch(Watch())
    assert [done for done, _, _ in steps] == [min(200 * n, trainer.n_instances) for n in range(1, len(steps) + 1)]
    assert {total for _, total, _ in steps} == {trainer.n_instances}
    assert loss == steps[-1][2]


def test_an_epoch_is_the_steps_of_its_batches(data: Dataset) -> None:
    """Without steps for newcomers, which come between."""
    trainer, by_hand = (begun(data, cold_start_rate=0.0, engine="eager") for _ in range(2))
    trainer.run_epoch(NullObserver())
    engine = EagerEngine(by_hand.model, by_hand.rows, by_hand.dense, "squared")
    for batch in by_hand.batches.epoch(0):
        for step in batch.steps(by_hand.batches.groups_per_step):
            engine.step(step)
    assert torch.equal(trainer.table, by_hand.table)


def test_cold_start_steps_come_with_their_rate(data: Dataset) -> None:
    without, with_steps = (begun(data, cold_start_rate=rate) for rate in (0.0, 0.5))
    for trainer in (without, with_steps):
        trainer.run_epoch(NullObserver())
    batches = with_steps.batches
    assert isinstance(batches, RankingBatches)
    rows = [batches.ids.unknown_user, batches.ids.unknown_item]
    start = begun(data).table[rows]
    assert torch.equal(without.table[rows], start)
    assert (with_steps.table[rows] != start).any(1).all()


class BrokenEngine:
    takes_device_batches = False

    def run(self, batch: Any, groups_per_step: int, loss: str | None = None) -> Iterator[tuple[float, int]]:
        yield float("nan"), groups_per_step


def test_a_loss_that_is_no_number_says_what_to_lower(data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = begun(data, lr=0.25)
    monkeypatch.setattr("gmlfm.training.row_trainer.make_engine", lambda *arguments: BrokenEngine())
    with pytest.raises(DivergedError, match=r"the loss became nan in epoch 1, nothing is kept; lower lr \(now 0.25\)."):
        trainer.fit(None, "", NullObserver())


def test_a_later_loss_that_is_no_number_keeps_the_best_epoch(data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, single = begun(data, epochs=5), begun(data, epochs=1)

    class Breaks(NullObserver):
        def on_epoch(self, report: Any, trainer: Any) -> None:
            trainer._engine = BrokenEngine()

    trainer.fit(None, "", Breaks())
    assert trainer.diverged == "the loss became nan in epoch 2, the weights of epoch 1 are kept; lower lr (now 0.003)."
    single.fit(None, "", NullObserver())
    assert torch.equal(trainer.table, single.table)


def test_warm_epochs_are_the_models(data: Dataset) -> None:
    assert begun(data, "ncf", pretrain=4).warm_epochs == 4
    assert begun(data).warm_epochs == 0


@pytest.mark.parametrize("optimiser", ["adam", "adagrad", "sgd"])
@pytest.mark.parametrize("engine", ["compiled", "eager"])
def test_the_state_of_every_optimiser_comes_back(data: Dataset, optimiser: str, engine: str) -> None:
    options = {"optimiser": optimiser, "engine": engine, "epochs": 3}
    trainer, resumed = begun(data, **options), begun(data, **options)
    trainer.run_epoch(NullObserver())
    tensors, numbers = trainer.state()
    resumed.run_epoch(NullObserver())  # its engine holds the optimisers' tensors by now
    resumed.load_state({name: tensor.clone() for name, tensor in tensors.items()}, numbers)
    assert all(torch.equal(tensor, trainer.state()[0][name]) for name, tensor in resumed.state()[0].items())
    for each in (trainer, resumed):
        each.epoch = 1
        each.run_epoch(NullObserver())
    expected = trainer.state()[0]
    assert all(torch.equal(tensor, expected[name]) for name, tensor in resumed.state()[0].items())


def absolute(scores: Tensor, labels: Tensor, weights: Tensor | None) -> Tensor:
    return (scores - labels).abs().mean()


class FMWithLoss(FM):
    losses: ClassVar[dict[str, Any]] = {"mine": absolute}


class GMLFMWithLoss(GMLFM):
    losses: ClassVar[dict[str, Any]] = {"mine": absolute}


@pytest.mark.usefixtures("loss_registry")
@pytest.mark.parametrize(
    ("model", "loss"), [(FM, "registered"), ("gml-fm", "registered"), (FMWithLoss, "mine"), (GMLFMWithLoss, "mine")]
)
def test_an_added_loss_trains_by_the_default_engine_setting(
    model: Any, loss: str, data: Dataset, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It has no kernel: the eager engine takes the steps, which is logged, and the loss is what is minimised."""
    monkeypatch.setattr(choose, "_logged", set())
    gmlfm.register_loss("registered")(absolute)
    options = {"k": 4, "epochs": 3, "batch_size": 200, "threads": 1, "lr": 0.02, "cold_start_rate": 0.0}
    owner = f" of {model.__name__}" if loss == "mine" else ""
    with caplog.at_level(logging.WARNING, "gmlfm"):
        recommender = Recommender(model, loss=loss, **options).fit(data)
    assert [record.getMessage() for record in caplog.records] == [
        f"the loss '{loss}'{owner} has no kernel; PyTorch takes the steps, operation by operation"
    ]
    losses = [entry["loss"] for entry in recommender.fitted.curve]
    assert losses[-1] < 0.9 * losses[0]
    assert recommender.evaluate(protocol="full").metrics["hr@10"] > 0.3
    with pytest.raises(
        OptionError, match=f"engine is 'compiled', but the loss '{loss}'{owner} has no kernel; use auto or eager"
    ):
        Recommender(model, loss=loss, engine="compiled", **options).fit(data)


@pytest.mark.usefixtures("loss_registry")
def test_an_added_loss_is_stepped_down(data: Dataset) -> None:
    """One step of gradient descent against autograd over the whole table."""
    gmlfm.register_loss("registered")(absolute)
    trainer = begun(data, "fm", loss="registered", optimiser="sgd", lr=0.1, cold_start_rate=0.0, batch_size=10**6)
    leaf = trainer.table.clone().requires_grad_()
    (batch,) = trainer.batches.epoch(0)
    attributes = [
        gmlfm.Attributes(torch.from_numpy(ids.astype(np.int64)), torch.from_numpy(x))
        for ids, x in ((batch.user_ids, batch.user_x), (batch.item_ids, batch.item_x))
    ]
    absolute(trainer.model.scores(leaf, *attributes), torch.from_numpy(batch.labels), None).backward()
    assert leaf.grad is not None
    expected = leaf.detach() - 0.1 * leaf.grad
    trainer.run_epoch(NullObserver())
    torch.testing.assert_close(trainer.table[1:], expected[1:])
