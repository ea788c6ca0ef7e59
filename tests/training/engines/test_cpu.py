"""Compiled steps against the reference in float64: the same parameters and moments from the same state."""

from __future__ import annotations

import copy
import logging
from pathlib import Path

import numpy as np
import pytest
import torch

from gmlfm.errors import DataError, OptionError
from gmlfm.models.base import GradientModel
from gmlfm.models.fm import FM
from gmlfm.models.gmlfm import GMLFM
from gmlfm.models.mf import MF
from gmlfm.models.nfm import NFM
from gmlfm.models.transfm import TransFM
from gmlfm.training.engines.cpu import cannot, compiled_steps
from gmlfm.training.engines.eager import ReferenceSteps
from gmlfm.training.loop import Trainer, TrainingOptions
from gmlfm.training.sampling.groups import Batch
from tests.training.engines.twins import GML, N_ROWS, batch_of, in_double, largest_difference, started


def differences(model: GradientModel, options: TrainingOptions, batch: Batch, size: int) -> tuple[float, float]:
    """The largest relative difference to the float64 reference, losses included, after one step; and after three more in one
    call, in which Adam makes rounding larger."""
    trainer = started(model, options)
    exact = in_double(trainer)
    steps = ReferenceSteps(exact.model, exact.rows, exact.dense, options.loss)
    fast = compiled_steps(trainer.model, trainer.rows, trainer.dense, options)
    first = next(batch.steps(size))
    ((found, _),) = fast.run(first, size)
    after_one = max(abs(found / steps.step(first) - 1), largest_difference(trainer, exact))
    later = batch_of(3 * size - 1, batch.user_ids.shape[1], *batch.item_ids.shape[1:], seed=3)
    expected = np.average([steps.step(part) for part in later.steps(size)], weights=[size, size, size - 1])
    ((found, _),) = fast.run(later, size)
    # Losses to a tenth of what moments may differ by.
    return after_one, max(10 * abs(found / expected - 1), largest_difference(trainer, exact))


@pytest.mark.parametrize("name", GML)
@pytest.mark.parametrize("threads", [1, 2])
def test_gml_fm(name: str, threads: int) -> None:
    torch.manual_seed(1)
    options = TrainingOptions(lr=1e-2, threads=threads)
    one, more = differences(GMLFM(**{"k": 9, "v_scale": 0.5, **GML[name]}), options, batch_of(37, 3, 4, 2), 10)
    assert one < 1e-5
    assert more < 1e-3


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
    # MF's reference gives rows that it does not use a step of their momentum; in real data such rows have none.
    batch = batch_of(37, 1, 4, 1) if isinstance(model, MF) else batch_of(37, 3, 4, 2)
    one, more = differences(copy.deepcopy(model), TrainingOptions(lr=1e-2, threads=threads), batch, 10)
    assert one < 1e-5
    assert more < 1e-3


def test_matrix_factorization_looks_at_ids_alone() -> None:
    trainers = [Trainer(MF(4), N_ROWS, TrainingOptions()) for _ in range(2)]
    wide = batch_of(20, 3, 3, 4)
    narrow = Batch(wide.user_ids[:, :1], wide.user_x[:, :1], wide.item_ids[..., :1], wide.item_x[..., :1], wide.labels, None)
    for trainer, batch in zip(trainers, (wide, narrow), strict=True):
        list(trainer.steps().run(batch, 5))
    assert torch.equal(trainers[0].table, trainers[1].table)


@pytest.mark.parametrize("loss", ["squared", "logistic", "bpr", "softmax"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["gml", "fm"])
def test_every_objective(loss: str, weighted: bool, kind: str) -> None:
    torch.manual_seed(1)
    model: GradientModel = GMLFM(6, **GML["recommended"], v_scale=0.7) if kind == "gml" else FM(6, v_scale=0.7)
    one, more = differences(model, TrainingOptions(loss=loss, lr=1e-2), batch_of(21, 2, 5, 3, weighted=weighted), 8)
    assert one < 1e-5
    assert more < 1e-3


def test_some_steps_by_another_objective_than_the_rest() -> None:
    trainer, batch = started(FM(5, v_scale=0.5), TrainingOptions(loss="softmax")), batch_of(20, 3, 4, 2)
    batch.labels[:] = np.linspace(-0.7, 0.4, batch.labels.size).reshape(batch.labels.shape)
    exact = in_double(trainer)
    steps = ReferenceSteps(exact.model, exact.rows, exact.dense, "softmax")
    fast = compiled_steps(trainer.model, trainer.rows, trainer.dense, trainer.options)
    for name in ("squared", None):
        ((found, _),) = fast.run(batch, 20, name)
        ((expected, _),) = steps.run(batch, 20, name)
        assert found == pytest.approx(expected, rel=1e-5)
    assert largest_difference(trainer, exact) < 1e-3


@pytest.mark.parametrize("optimiser", ["adam", "adagrad", "sgd"])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("kind", ["gml", "transfm"])
def test_every_optimiser(optimiser: str, weight_decay: float, kind: str) -> None:
    torch.manual_seed(1)
    model: GradientModel = GMLFM(6, **GML["recommended"], v_scale=0.7) if kind == "gml" else TransFM(6, v_scale=0.7)
    one, more = differences(
        model,
        TrainingOptions(optimiser=optimiser, lr=1e-4 if optimiser == "sgd" else 1e-2, weight_decay=weight_decay),
        batch_of(21, 2, 3, 3),
        8,
    )
    assert one < 1e-5
    assert more < 1e-3


@pytest.mark.parametrize(
    ("user_width", "item_width", "group"), [(0, 1, 1), (1, 1, 2), (0, 7, 1), (5, 1, 3), (2, 60, 2), (9, 9, 9)]
)
@pytest.mark.parametrize("kind", ["gml", "fm", "transfm"])
def test_sides_of_any_width(user_width: int, item_width: int, group: int, kind: str) -> None:
    torch.manual_seed(1)
    model: GradientModel = {"gml": GMLFM(5, **GML["dnn"]), "fm": FM(5, v_scale=0.3), "transfm": TransFM(5, v_scale=0.1)}[kind]
    one, more = differences(model, TrainingOptions(lr=1e-3), batch_of(11, user_width, group, item_width), 4)
    assert one < 1e-5
    assert more < 1e-3


@pytest.mark.parametrize("kind", ["gml", "fm", "transfm"])
def test_five_hundred_attributes(kind: str) -> None:
    torch.manual_seed(1)
    model: GradientModel = {"gml": GMLFM(5, **GML["dnn"]), "fm": FM(5, v_scale=0.3), "transfm": TransFM(5, v_scale=0.1)}[kind]
    # A hundred thousand pairs are summed in float32.
    one, more = differences(model, TrainingOptions(lr=1e-3), batch_of(5, 1, 1, 500), 4)
    assert one < 1e-3
    assert more < 1e-3


def test_rows_without_any_attribute_learn_the_bias_alone() -> None:
    batch = batch_of(6, 2, 2, 2)
    nothing = Batch(
        *(np.zeros_like(one) for one in (batch.user_ids, batch.user_x, batch.item_ids, batch.item_x)),
        batch.labels,
        None,
    )
    trainer = Trainer(FM(4), N_ROWS, TrainingOptions(optimiser="sgd", lr=0.1))
    before = trainer.table.clone()
    list(compiled_steps(trainer.model, trainer.rows, trainer.dense, trainer.options).run(nothing, 6))
    assert torch.equal(trainer.table, before)
    assert float(trainer.model.bias.detach()) == 0.0  # one positive, one negative: their slopes cancel
    nothing.labels[:] = 1.0
    list(compiled_steps(trainer.model, trainer.rows, trainer.dense, trainer.options).run(nothing, 6))
    assert float(trainer.model.bias.detach()) == pytest.approx(0.2)


def test_the_same_threads_give_the_same_numbers() -> None:
    found = []
    for _ in range(2):
        torch.manual_seed(1)
        trainer = Trainer(GMLFM(8, **GML["recommended"]), N_ROWS, TrainingOptions(threads=2))
        list(compiled_steps(trainer.model, trainer.rows, trainer.dense, trainer.options).run(batch_of(64, 3, 5, 2), 16))
        found.append(trainer.state()[0])
    assert all(torch.equal(one, found[1][name]) for name, one in found[0].items())


def test_a_loss_that_is_no_number_changes_nothing() -> None:
    trainer = started(GMLFM(6, **GML["recommended"]), TrainingOptions())
    batch = batch_of(20, 3, 3, 2)
    trainer.table[int(batch.user_ids[0, 0])] = float("inf")
    before = {name: one.clone() for name, one in trainer.state()[0].items()}
    (loss, _), *_ = compiled_steps(trainer.model, trainer.rows, trainer.dense, trainer.options).run(batch, 8)
    assert np.isnan(loss)
    assert all(torch.equal(one, before[name]) for name, one in trainer.state()[0].items() if "step" not in name)


def test_a_row_outside_the_table_is_refused() -> None:
    trainer = Trainer(FM(4), N_ROWS, TrainingOptions())
    batch = batch_of(6, 2, 2, 2)
    batch.item_ids[3, 1, 0] = N_ROWS
    with pytest.raises(DataError, match="a batch names row 40; the table has 40"):
        list(compiled_steps(trainer.model, trainer.rows, trainer.dense, trainer.options).run(batch, 6))


def test_what_has_no_compiled_steps_says_so() -> None:
    assert cannot(GMLFM(4)) == ""
    for model, reason in (
        (GMLFM(4, distance="manhattan"), "only the squared distance"),
        (GMLFM(4, weight=False), "only the squared distance"),
        (GMLFM(4, layers=2, dropout=0.5), "dropout"),
        (GMLFM(4, form="factored"), "factored form"),
        (NFM(4), "NFM has no compiled steps"),
    ):
        assert reason in cannot(model)
        trainer = Trainer(model, N_ROWS, TrainingOptions(engine="compiled"))
        with pytest.raises(OptionError, match="engine is 'compiled', but"):
            trainer.steps()


def test_the_first_call_says_that_it_compiles_and_a_cached_one_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from gmlfm.kernels.cpu import jit, losses

    monkeypatch.setenv("GMLFM_KERNEL_CACHE", str(tmp_path))
    jit._cache.cache_clear()
    try:
        told = []
        for _ in range(2):
            kernel = jit.compiled(losses.soft_plus.py_func)
            caplog.clear()
            with caplog.at_level(logging.WARNING, "gmlfm"):
                jit.tell_if_compiling(kernel)
            told.append(caplog.text)
            assert kernel(np.float32(0.0)) == pytest.approx(np.log(2.0))
        assert "compiling the training kernels for this machine, about half a minute, once" in told[0]
        assert told[1] == ""
    finally:
        jit._cache.cache_clear()


def test_without_a_place_to_keep_compiled_code_it_says_so(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from gmlfm.kernels.cpu import jit

    blocked = tmp_path_factory.mktemp("cache") / "file"
    blocked.write_text("not a folder")
    monkeypatch.setenv("GMLFM_KERNEL_CACHE", str(blocked))
    jit._cache.cache_clear()
    try:

        @jit.compiled
        def double(x: float) -> float:
            return x + x

        with caplog.at_level(logging.WARNING, "gmlfm"):
            jit.tell_if_compiling(double)
        assert "cannot be written, so again next time" in caplog.text
        assert double(2.0) == 4.0
    finally:
        jit._cache.cache_clear()
