"""Training of gradient models by rows of their table."""

from __future__ import annotations

import contextlib
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
from gmlfm.training.cold_start import ColdStartTrainer
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
    plain = {"history": "none"} if model in ("fm", "gml-fm") else {}
    settings = Settings.make(model, "topn", {"k": 4, "batch_size": 200, "threads": 1, **plain, **options})
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
    with pytest.raises(DivergedError, match=r"^nothing was learned: the loss became nan in epoch 1; lower lr \(now 0.25\).$"):
        trainer.fit(None, "", NullObserver())


def test_a_later_loss_that_is_no_number_keeps_the_best_epoch(data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, single = begun(data, epochs=5), begun(data, epochs=1)

    class Breaks(NullObserver):
        def on_epoch(self, report: Any, trainer: Any) -> None:
            trainer._engine = BrokenEngine()

    trainer.fit(None, "", Breaks())
    assert trainer.diverged == "the weights of epoch 1 are kept: the loss became nan in epoch 2; lower lr (now 0.003)."
    single.fit(None, "", NullObserver())
    assert torch.equal(trainer.table, single.table)


def test_the_start_is_the_loss_before_the_first_step(data: Dataset) -> None:
    for options in ({}, {"loss": "bpr"}, {"lr": 1000.0}):
        trainer = begun(data, epochs=1, **options)
        assert np.isnan(trainer.start_loss)
        with contextlib.suppress(DivergedError):
            trainer.fit(None, "", NullObserver())
        assert trainer.start_loss == pytest.approx(np.log(2) if "loss" in options else 1.0, rel=0.1)


def test_a_resumed_training_is_judged_by_the_same_sample(data: Dataset) -> None:
    trainer, resumed = begun(data, epochs=1), begun(data, epochs=2)
    trainer.fit(None, "", NullObserver())
    resumed.load_state(*trainer.state())
    assert resumed.start_loss == trainer.start_loss
    resumed.fit(None, "", NullObserver())
    resumed.load_weights(trainer.weights())
    for either in (trainer, resumed):
        either._reading = None
    assert resumed.probe() == trainer.probe()


def test_the_level_that_cold_start_steps_leave_at_the_end_of_an_epoch_is_no_divergence(
    data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = begun(data, "fm", epochs=1)

    def shift(self: ColdStartTrainer) -> Iterator[float]:
        trainer.table[1:, 0] += 2.0
        yield 0.0

    monkeypatch.setattr(ColdStartTrainer, "end", shift)
    losses: list[float] = []

    def validate(model: Any) -> dict[str, float]:
        assert trainer._probe is not None
        losses.append(trainer._probe(trainer.model, trainer.table).loss)
        return {"ndcg@10": 1.0}

    trainer.fit(validate, "ndcg@10", NullObserver())
    assert losses[0] > 5 * trainer.start_loss
    assert (trainer.best_epoch, trainer.diverged) == (1, "")


def test_the_sample_changes_no_weight(data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """With dropout, whose random numbers it must not draw."""
    judged, unjudged = (begun(data, "gml-fm-unit", layers=2, dropout=0.3, epochs=2) for _ in range(2))
    judged.fit(None, "", NullObserver())
    monkeypatch.setattr(RowTrainer, "_begin_probe", lambda self, batch: None)
    unjudged.fit(None, "", NullObserver())
    assert unjudged.probe() is None
    assert torch.equal(judged.table, unjudged.table)


def test_an_overflow_in_the_last_step_of_an_epoch_keeps_the_best_epoch(data: Dataset) -> None:
    trainer, single = begun(data, epochs=5), begun(data, epochs=1)

    class OverflowingEngine:
        """Its losses are numbers, what its last step leaves is none."""

        takes_device_batches = False

        def run(self, batch: Any, groups_per_step: int, loss: str | None = None) -> Iterator[tuple[float, int]]:
            trainer.table[7] = float("inf")
            yield 0.5, batch.labels.size

    class Breaks(NullObserver):
        def on_epoch(self, report: Any, trainer: Any) -> None:
            trainer._engine = OverflowingEngine()

    trainer.fit(lambda model: {"ndcg@10": 1.0}, "ndcg@10", Breaks())
    reason = "weights are not finite after epoch 2; lower lr (now 0.003)."
    assert trainer.diverged == f"the weights of epoch 1 are kept: {reason}"
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
        recommender = Recommender(model, loss=loss, history="none", **options).fit(data)
    assert [record.getMessage() for record in caplog.records] == [
        f"the loss '{loss}'{owner} has no kernel; PyTorch takes the steps, operation by operation"
    ]
    losses = [entry["loss"] for entry in recommender.fitted.curve]
    assert losses[-1] < 0.9 * losses[0]
    assert recommender.evaluate(protocol="full").metrics["hr@10"] > 0.3
    with pytest.raises(
        OptionError, match=f"engine is 'compiled', but the loss '{loss}'{owner} has no kernel; use auto or eager"
    ):
        Recommender(model, loss=loss, engine="compiled", history="none", **options).fit(data)


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
