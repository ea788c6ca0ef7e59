"""Steps on a GPU against the reference in float64. Without a GPU, TRITON_INTERPRET=1 runs the kernels on the CPU, slowly."""

from __future__ import annotations

import copy
import os

import numpy as np
import pytest
import torch

pytest.importorskip("triton")
if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("no GPU", allow_module_level=True)

from gmlfm.errors import DataError
from gmlfm.models.base import Model
from gmlfm.models.fm import FM
from gmlfm.models.gmlfm import GMLFM
from gmlfm.models.mf import MF
from gmlfm.training.device import DeviceSteps
from gmlfm.training.loop import Trainer, TrainingOptions
from gmlfm.training.steps import ReferenceSteps
from tests.training.twins import GML, N_ROWS, agree, batch_of, in_double, started

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def moved(trainer: Trainer) -> Trainer:
    """The same state on the device."""
    twin = Trainer(copy.deepcopy(trainer.model), N_ROWS, trainer.options, DEVICE)
    twin.load_state(*trainer.state())
    return twin


def compare(
    model: Model,
    options: TrainingOptions,
    shape: tuple[int, int, int, int],
    size: int,
    weighted: bool = False,
    tolerance: float = 1e-3,
) -> None:
    trainer = started(model, options)
    exact, here = in_double(trainer), moved(trainer)
    batch = batch_of(*shape, weighted=weighted)
    steps = ReferenceSteps(exact.model, exact.rows, exact.dense, options.loss)
    fast = DeviceSteps(here.model, here.rows, here.dense, options, graphs=DEVICE == "cuda")
    first = next(batch.steps(size))
    assert [loss for loss, _ in fast.run(first, size)] == [pytest.approx(steps.step(first), rel=1e-3)]
    agree(here, exact, tolerance)
    parts = list(batch.steps(size))
    expected = np.average([steps.step(part) for part in parts], weights=[len(part) for part in parts])
    assert [loss for loss, _ in fast.run(batch, size)] == [pytest.approx(expected, rel=1e-3)]
    agree(here, exact, 5e-3)


@pytest.mark.parametrize("name", GML)
def test_gml_fm(name: str) -> None:
    torch.manual_seed(1)
    compare(GMLFM(**{"k": 9, "v_scale": 0.5, **GML[name]}), TrainingOptions(lr=1e-2), (23, 3, 4, 2), 8)


@pytest.mark.parametrize("model", [FM(7, v_scale=0.5), MF(20, v_scale=0.5)], ids=["fm", "mf"])
def test_models_without_distances(model: Model) -> None:
    shape = (23, 1, 4, 1) if isinstance(model, MF) else (23, 3, 4, 2)
    compare(copy.deepcopy(model), TrainingOptions(lr=1e-2), shape, 8)


@pytest.mark.parametrize("loss", ["squared", "logistic", "bpr", "softmax"])
@pytest.mark.parametrize(("group", "n_answering"), [(5, 3), (9, 2), (2, 17)])
def test_every_objective(loss: str, group: int, n_answering: int) -> None:
    torch.manual_seed(1)
    compare(
        GMLFM(6, **GML["recommended"], v_scale=0.7), TrainingOptions(loss=loss, lr=1e-2), (11, 2, group, n_answering), 4, True
    )


@pytest.mark.parametrize("optimiser", ["adam", "adagrad", "sgd"])
def test_every_optimiser(optimiser: str) -> None:
    torch.manual_seed(1)
    options = TrainingOptions(optimiser=optimiser, lr=1e-2, weight_decay=0.1)
    compare(GMLFM(6, **GML["recommended"], v_scale=0.7), options, (11, 2, 3, 3), 4)


def test_wide_tiles_of_lower_precision() -> None:
    torch.manual_seed(1)
    compare(GMLFM(64, **GML["recommended"], v_scale=0.2), TrainingOptions(lr=1e-3), (9, 2, 3, 17), 4, tolerance=3e-3)


def test_matrices_too_wide_for_a_program() -> None:
    torch.manual_seed(1)
    compare(GMLFM(130, **GML["recommended"], v_scale=0.2), TrainingOptions(lr=1e-3), (9, 2, 3, 2), 4, tolerance=3e-3)


def test_rows_that_every_instance_has_are_summed_in_pieces() -> None:
    torch.manual_seed(1)
    # 40 rows and 600 occurrences a step: some rows have more than a piece.
    compare(GMLFM(6, **GML["recommended"], v_scale=0.7), TrainingOptions(lr=1e-2), (150, 2, 5, 3), 120)


def test_a_loss_that_is_no_number_changes_nothing() -> None:
    trainer = moved(started(GMLFM(6, **GML["recommended"]), TrainingOptions()))
    batch = batch_of(20, 3, 3, 2)
    trainer.table[int(batch.asking_ids[0, 0])] = float("inf")
    before = {name: one.clone() for name, one in trainer.state()[0].items()}
    steps = DeviceSteps(trainer.model, trainer.rows, trainer.dense, trainer.options, graphs=DEVICE == "cuda")
    with np.errstate(all="ignore"):
        assert np.isnan(next(iter(steps.run(batch, 8)))[0])
    assert all(torch.equal(one, before[name]) for name, one in trainer.state()[0].items() if "step" not in name)


def test_a_row_outside_the_table_is_refused() -> None:
    trainer = moved(started(FM(4), TrainingOptions()))
    batch = batch_of(6, 2, 2, 2)
    batch.answering_ids[3, 1, 0] = N_ROWS
    steps = DeviceSteps(trainer.model, trainer.rows, trainer.dense, trainer.options, graphs=DEVICE == "cuda")
    with pytest.raises(DataError, match="a batch names row 40; the table has 40"):
        list(steps.run(batch, 6))
