"""The engine on a CPU against the eager one in float64: the same parameters and moments from the same state."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

from gmlfm.errors import DataError
from gmlfm.models.fm import FM
from gmlfm.models.gmlfm import GMLFM
from gmlfm.models.gradient import GradientModel
from gmlfm.models.mf import MF
from gmlfm.models.transfm import TransFM
from gmlfm.training.engines.cpu import CpuEngine, cpu_engine
from gmlfm.training.engines.eager import EagerEngine
from gmlfm.training.engines.workers import WorkerCount, Workers
from gmlfm.training.options import TrainingOptions
from gmlfm.training.row_trainer import RowTrainer
from gmlfm.training.sampling.groups import Batch
from tests.training.engines.twins import (
    GML,
    N_ROWS,
    batch_of,
    far_away,
    in_double,
    largest_difference,
    started,
    with_any_x_of_ids,
)


def engine_of(trainer: RowTrainer) -> CpuEngine:
    spec = trainer.model.kernel_spec()
    assert spec is not None
    return cpu_engine(spec, trainer.rows, trainer.dense, trainer.options)


def differences(model: GradientModel, options: TrainingOptions, batch: Batch, size: int) -> tuple[float, float]:
    """The largest relative difference to eager steps in float64, losses included, after one step; and after three more in one
    call, in which Adam makes rounding larger."""
    trainer = started(model, options)
    exact = in_double(trainer)
    eager, engine = EagerEngine(exact.model, exact.rows, exact.dense, options.loss), engine_of(trainer)
    first_batch = next(batch.steps(size))
    ((loss, _),) = engine.run(first_batch, size)
    after_first = max(abs(loss / eager.step(first_batch) - 1), largest_difference(trainer, exact))
    later_batch = batch_of(3 * size - 1, batch.user_ids.shape[1], *batch.item_ids.shape[1:], seed=3)
    expected = np.average([eager.step(step) for step in later_batch.steps(size)], weights=[size, size, size - 1])
    ((loss, _),) = engine.run(later_batch, size)
    # Losses to a tenth of what moments may differ by.
    return after_first, max(10 * abs(loss / expected - 1), largest_difference(trainer, exact))


@pytest.mark.parametrize("name", GML)
@pytest.mark.parametrize("threads", [1, 2])
def test_gml_fm(name: str, threads: int) -> None:
    torch.manual_seed(1)
    options = TrainingOptions(lr=1e-2, threads=threads)
    after_first, later = differences(GMLFM(**{"k": 9, "v_scale": 0.5, **GML[name]}), options, batch_of(37, 3, 4, 2), 10)
    assert after_first < 1e-5
    assert later < 1e-3


@pytest.mark.parametrize(
    "model",
    [
        FM(7, v_scale=0.5),
        MF(8, v_scale=0.5),
        MF(8, biases=False, lambda_user=0.1, lambda_item=0.2, v_scale=0.5),
        TransFM(5, 0.5),
    ],
    ids=["fm", "mf", "pmf", "transfm"],
)
@pytest.mark.parametrize("threads", [1, 2])
def test_models_of_sums(model: GradientModel, threads: int) -> None:
    # MF's eager engine gives rows that it does not use a step of their momentum; in real data such rows have none.
    batch = batch_of(37, 1, 4, 1) if isinstance(model, MF) else batch_of(37, 3, 4, 2)
    after_first, later = differences(copy.deepcopy(model), TrainingOptions(lr=1e-2, threads=threads), batch, 10)
    assert after_first < 1e-5
    assert later < 1e-3


@pytest.mark.parametrize("priors", [{}, {"biases": False, "lambda_user": 0.1, "lambda_item": 0.2}], ids=["mf", "pmf"])
def test_matrix_factorization_does_not_look_at_the_x_of_ids(priors: dict[str, Any]) -> None:
    torch.manual_seed(1)
    batch = with_any_x_of_ids(batch_of(37, 1, 4, 1))
    trainer = started(MF(8, v_scale=0.5, **priors), TrainingOptions(lr=1e-2))
    exact = in_double(trainer)
    ((loss, _),) = engine_of(trainer).run(batch, 40)
    assert loss == pytest.approx(EagerEngine(exact.model, exact.rows, exact.dense, "squared").step(batch), rel=1e-5)
    assert largest_difference(trainer, exact) < 1e-5


@pytest.mark.parametrize("kind", ["identity", "mahalanobis", "transfm"])
def test_near_points_far_from_the_origin_keep_their_digits(kind: str) -> None:
    """|a|^2 + |b|^2 - 2 a.b of these has an error as large as the distances."""
    torch.manual_seed(1)
    model: GradientModel = TransFM(6, 0.5) if kind == "transfm" else GMLFM(6, **GML[kind], v_scale=0.5)
    trainer = far_away(started(model, TrainingOptions(lr=1e-2)))
    exact, batch = in_double(trainer), batch_of(37, 3, 4, 2)
    ((loss, _),) = engine_of(trainer).run(batch, 40)
    assert loss == pytest.approx(EagerEngine(exact.model, exact.rows, exact.dense, "squared").step(batch), rel=1e-4)
    assert largest_difference(trainer, exact) < 1e-3  # a matrix product alone leaves 2e-6 in a z of 30


def test_matrix_factorization_looks_at_ids_alone() -> None:
    trainers = [RowTrainer(MF(4), N_ROWS, TrainingOptions()) for _ in range(2)]
    wide = batch_of(20, 3, 3, 4)
    narrow = Batch(wide.user_ids[:, :1], wide.user_x[:, :1], wide.item_ids[..., :1], wide.item_x[..., :1], wide.labels, None)
    for trainer, batch in zip(trainers, (wide, narrow), strict=True):
        list(trainer.engine.run(batch, 5))
    assert torch.equal(trainers[0].table, trainers[1].table)


@pytest.mark.parametrize("loss", ["squared", "logistic", "bpr", "softmax"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["gml", "fm"])
def test_every_objective(loss: str, weighted: bool, kind: str) -> None:
    torch.manual_seed(1)
    model: GradientModel = GMLFM(6, **GML["recommended"], v_scale=0.7) if kind == "gml" else FM(6, v_scale=0.7)
    after_first, later = differences(model, TrainingOptions(loss=loss, lr=1e-2), batch_of(21, 2, 5, 3, weighted=weighted), 8)
    assert after_first < 1e-5
    assert later < 1e-3


def test_some_steps_by_another_objective_than_the_rest() -> None:
    trainer, batch = started(FM(5, v_scale=0.5), TrainingOptions(loss="softmax")), batch_of(20, 3, 4, 2)
    batch.labels[:] = np.linspace(-0.7, 0.4, batch.labels.size).reshape(batch.labels.shape)
    exact = in_double(trainer)
    eager, engine = EagerEngine(exact.model, exact.rows, exact.dense, "softmax"), engine_of(trainer)
    for name in ("squared", None):
        ((loss, _),) = engine.run(batch, 20, name)
        ((expected, _),) = eager.run(batch, 20, name)
        assert loss == pytest.approx(expected, rel=1e-5)
    assert largest_difference(trainer, exact) < 1e-3


@pytest.mark.parametrize("optimiser", ["adam", "adagrad", "sgd"])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("kind", ["gml", "transfm"])
def test_every_optimiser(optimiser: str, weight_decay: float, kind: str) -> None:
    torch.manual_seed(1)
    model: GradientModel = GMLFM(6, **GML["recommended"], v_scale=0.7) if kind == "gml" else TransFM(6, v_scale=0.7)
    after_first, later = differences(
        model,
        TrainingOptions(optimiser=optimiser, lr=1e-4 if optimiser == "sgd" else 1e-2, weight_decay=weight_decay),
        batch_of(21, 2, 3, 3),
        8,
    )
    assert after_first < 1e-5
    assert later < 1e-3


@pytest.mark.parametrize(
    ("user_width", "item_width", "group"), [(0, 1, 1), (1, 1, 2), (0, 7, 1), (5, 1, 3), (2, 60, 2), (9, 9, 9)]
)
@pytest.mark.parametrize("kind", ["gml", "fm", "transfm"])
def test_sides_of_any_width(user_width: int, item_width: int, group: int, kind: str) -> None:
    torch.manual_seed(1)
    model: GradientModel = {"gml": GMLFM(5, **GML["dnn"]), "fm": FM(5, v_scale=0.3), "transfm": TransFM(5, v_scale=0.1)}[kind]
    after_first, later = differences(model, TrainingOptions(lr=1e-3), batch_of(11, user_width, group, item_width), 4)
    assert after_first < 1e-5
    assert later < 1e-3


@pytest.mark.parametrize("kind", ["gml", "fm", "transfm"])
def test_five_hundred_attributes(kind: str) -> None:
    torch.manual_seed(1)
    model: GradientModel = {"gml": GMLFM(5, **GML["dnn"]), "fm": FM(5, v_scale=0.3), "transfm": TransFM(5, v_scale=0.1)}[kind]
    # A hundred thousand pairs are summed in float32.
    after_first, later = differences(model, TrainingOptions(lr=1e-3), batch_of(5, 1, 1, 500), 4)
    assert after_first < 1e-3
    assert later < 1e-3


def test_rows_without_any_attribute_learn_the_bias_alone() -> None:
    batch = batch_of(6, 2, 2, 2)
    empty = Batch(
        *(np.zeros_like(array) for array in (batch.user_ids, batch.user_x, batch.item_ids, batch.item_x)),
        batch.labels,
        None,
    )
    trainer = RowTrainer(FM(4), N_ROWS, TrainingOptions(optimiser="sgd", lr=0.1))
    before = trainer.table.clone()
    list(engine_of(trainer).run(empty, 6))
    assert torch.equal(trainer.table, before)
    assert float(trainer.model.bias.detach()) == 0.0  # one positive, one negative: their gradients cancel
    empty.labels[:] = 1.0
    list(engine_of(trainer).run(empty, 6))
    assert float(trainer.model.bias.detach()) == pytest.approx(0.2)


def test_the_same_threads_give_the_same_numbers() -> None:
    states = []
    for _ in range(2):
        torch.manual_seed(1)
        trainer = RowTrainer(GMLFM(8, **GML["recommended"]), N_ROWS, TrainingOptions(threads=2))
        list(engine_of(trainer).run(batch_of(64, 3, 5, 2), 16))
        states.append(trainer.state()[0])
    assert all(torch.equal(tensor, states[1][name]) for name, tensor in states[0].items())


def test_a_loss_that_is_no_number_changes_nothing() -> None:
    trainer = started(GMLFM(6, **GML["recommended"]), TrainingOptions())
    batch = batch_of(20, 3, 3, 2)
    trainer.table[int(batch.user_ids[0, 0])] = float("inf")
    before = {name: tensor.clone() for name, tensor in trainer.state()[0].items()}
    (loss, _), *_ = engine_of(trainer).run(batch, 8)
    assert np.isnan(loss)
    assert all(torch.equal(tensor, before[name]) for name, tensor in trainer.state()[0].items() if "step" not in name)


def test_a_row_outside_the_table_is_refused() -> None:
    trainer = RowTrainer(FM(4), N_ROWS, TrainingOptions())
    batch = batch_of(6, 2, 2, 2)
    batch.item_ids[3, 1, 0] = N_ROWS
    with pytest.raises(DataError, match="a batch names row 40; the table has 40"):
        list(engine_of(trainer).run(batch, 6))


@pytest.mark.parametrize("model", [GMLFM(9, **GML["mahalanobis"], v_scale=0.5), FM(7, v_scale=0.5)], ids=["gml", "fm"])
@pytest.mark.parametrize("threads", [2, 3, 5])
def test_how_many_workers_take_the_parts_changes_no_bit(model: GradientModel, threads: int) -> None:
    tables, losses = [], []
    for n_workers in range(1, threads + 1):
        trainer = started(copy.deepcopy(model), TrainingOptions(lr=1e-2, threads=threads))
        engine = engine_of(trainer)
        assert engine.n_threads == threads
        engine._count, engine._workers = WorkerCount(n_workers), Workers(n_workers)
        engine._count.candidates = [n_workers]
        losses.append([loss for loss, _ in engine.run(batch_of(200, 3, 4, 2), 10)])
        tables.append(trainer.table.clone())
    assert all(torch.equal(table, tables[0]) for table in tables)
    assert all(loss == losses[0] for loss in losses)


def test_a_choice_that_changes_on_the_way_changes_no_bit() -> None:
    class Alternating(WorkerCount):
        """A step a block, by another number of workers each."""

        @property
        def next(self) -> int:
            self._number = 1 + getattr(self, "_number", 0) % 3
            return self._number

        def steps_per_block(self, groups_per_step: int) -> int:
            return 1

        def record(self, workers: int, groups: int, seconds: float) -> None:
            blocks.append((workers, groups))

    tables, blocks = [], []
    for is_changing in (False, True):
        trainer = started(FM(7, v_scale=0.5), TrainingOptions(lr=1e-2, threads=3))
        engine = engine_of(trainer)
        if is_changing:
            engine._count, engine._workers = Alternating(3), Workers(3)
        list(engine.run(batch_of(95, 3, 4, 2), 10))
        tables.append(trainer.table.clone())
    assert torch.equal(tables[0], tables[1])
    assert [groups for _, groups in blocks] == [10] * 9 + [5]
    assert {workers for workers, _ in blocks} == {1, 2, 3}
