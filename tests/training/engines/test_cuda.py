"""Steps on a GPU against the reference in float64. Without a GPU, TRITON_INTERPRET=1 runs the kernels on the CPU, slowly."""

from __future__ import annotations

import copy
import os
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("triton")
if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("no GPU", allow_module_level=True)

from gmlfm.errors import DataError
from gmlfm.models.base import GradientModel
from gmlfm.models.fm import FM
from gmlfm.models.gmlfm import GMLFM
from gmlfm.models.mf import MF
from gmlfm.training.checkpoint import newest_checkpoint, save_checkpoint
from gmlfm.training.engines.cuda import DeviceSteps
from gmlfm.training.engines.eager import ReferenceSteps
from gmlfm.training.loop import Trainer, TrainingOptions
from tests.training.engines.twins import GML, N_ROWS, batch_of, in_double, largest_difference, started

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def moved(trainer: Trainer) -> Trainer:
    """The same state on the device."""
    twin = Trainer(copy.deepcopy(trainer.model), N_ROWS, trainer.options, DEVICE)
    twin.load_state(*trainer.state())
    return twin


def started_like(trainer: Trainer) -> Trainer:
    """The same state on the CPU, sharing nothing."""
    twin = Trainer(copy.deepcopy(trainer.model).cpu(), N_ROWS, trainer.options)
    twin.load_state({name: one.detach().cpu().clone() for name, one in trainer.state()[0].items()}, trainer.state()[1])
    return twin


def differences(
    model: GradientModel, options: TrainingOptions, shape: tuple[int, int, int, int], size: int, weighted: bool = False
) -> tuple[float, float]:
    """The largest relative difference to the float64 reference after one step, and after some more. Losses count tenfold."""
    trainer = started(model, options)
    exact, here = in_double(trainer), moved(trainer)
    batch = batch_of(*shape, weighted=weighted)
    steps = ReferenceSteps(exact.model, exact.rows, exact.dense, options.loss)
    fast = DeviceSteps(here.model, here.rows, here.dense, options, graphs=DEVICE == "cuda")
    first = next(batch.steps(size))
    ((found, _),) = fast.run(first, size)
    after_one = max(10 * abs(found / steps.step(first) - 1), largest_difference(here, exact))
    parts = list(batch.steps(size))
    expected = np.average([steps.step(part) for part in parts], weights=[len(part) for part in parts])
    ((found, _),) = fast.run(batch, size)
    return after_one, max(abs(found / expected - 1), largest_difference(here, exact))


@pytest.mark.parametrize("name", GML)
def test_gml_fm(name: str) -> None:
    torch.manual_seed(1)
    one, more = differences(GMLFM(**{"k": 9, "v_scale": 0.5, **GML[name]}), TrainingOptions(lr=1e-2), (23, 3, 4, 2), 8)
    assert one < 1e-3
    assert more < 5e-3


@pytest.mark.parametrize("model", [FM(7, v_scale=0.5), MF(20, v_scale=0.5)], ids=["fm", "mf"])
def test_models_without_distances(model: GradientModel) -> None:
    shape = (23, 1, 4, 1) if isinstance(model, MF) else (23, 3, 4, 2)
    one, more = differences(copy.deepcopy(model), TrainingOptions(lr=1e-2), shape, 8)
    assert one < 1e-3
    assert more < 5e-3


@pytest.mark.parametrize("loss", ["squared", "logistic", "bpr", "softmax"])
@pytest.mark.parametrize(("group", "item_width"), [(5, 3), (9, 2), (2, 17)])
def test_every_objective(loss: str, group: int, item_width: int) -> None:
    torch.manual_seed(1)
    one, more = differences(
        GMLFM(6, **GML["recommended"], v_scale=0.7), TrainingOptions(loss=loss, lr=1e-2), (11, 2, group, item_width), 4, True
    )
    assert one < 1e-3
    assert more < 5e-3


@pytest.mark.parametrize("optimiser", ["adam", "adagrad", "sgd"])
def test_every_optimiser(optimiser: str) -> None:
    torch.manual_seed(1)
    options = TrainingOptions(optimiser=optimiser, lr=1e-2, weight_decay=0.1)
    one, more = differences(GMLFM(6, **GML["recommended"], v_scale=0.7), options, (11, 2, 3, 3), 4)
    assert one < 1e-3
    assert more < 5e-3


def test_wide_tiles() -> None:
    torch.manual_seed(1)
    one, more = differences(GMLFM(64, **GML["recommended"], v_scale=0.2), TrainingOptions(lr=1e-3), (9, 2, 3, 17), 4)
    assert one < 1e-3
    assert more < 5e-3


def test_matrices_too_wide_for_a_program() -> None:
    torch.manual_seed(1)
    one, more = differences(GMLFM(130, **GML["recommended"], v_scale=0.2), TrainingOptions(lr=1e-3), (9, 2, 3, 2), 4)
    assert one < 1e-3
    assert more < 5e-3


def test_rows_that_every_instance_has_are_summed_in_pieces() -> None:
    torch.manual_seed(1)
    # 40 rows and 600 occurrences a step: some rows have more than a piece.
    one, more = differences(GMLFM(6, **GML["recommended"], v_scale=0.7), TrainingOptions(lr=1e-2), (150, 2, 5, 3), 120)
    assert one < 1e-3
    assert more < 5e-3


def test_a_loss_that_is_no_number_changes_nothing() -> None:
    trainer = moved(started(GMLFM(6, **GML["recommended"]), TrainingOptions()))
    batch = batch_of(20, 3, 3, 2)
    trainer.table[int(batch.user_ids[0, 0])] = float("inf")
    before = {name: one.clone() for name, one in trainer.state()[0].items()}
    steps = DeviceSteps(trainer.model, trainer.rows, trainer.dense, trainer.options, graphs=DEVICE == "cuda")
    with np.errstate(all="ignore"):
        assert np.isnan(next(iter(steps.run(batch, 8)))[0])
    assert all(torch.equal(one, before[name]) for name, one in trainer.state()[0].items() if "step" not in name)


def test_a_row_outside_the_table_is_refused() -> None:
    trainer = moved(started(FM(4), TrainingOptions()))
    batch = batch_of(6, 2, 2, 2)
    batch.item_ids[3, 1, 0] = N_ROWS
    steps = DeviceSteps(trainer.model, trainer.rows, trainer.dense, trainer.options, graphs=DEVICE == "cuda")
    with pytest.raises(DataError, match="a batch names row 40; the table has 40"):
        list(steps.run(batch, 6))


def test_begun_on_the_device_and_resumed_on_a_cpu(tmp_path: Path) -> None:
    torch.manual_seed(1)
    here = moved(started(GMLFM(6, **GML["recommended"], v_scale=0.7), TrainingOptions(lr=1e-2)))
    batch = batch_of(24, 3, 4, 2)
    exact = in_double(started_like(here))
    list(DeviceSteps(here.model, here.rows, here.dense, here.options, graphs=DEVICE == "cuda").run(batch, 8))
    here.epoch = 1
    save_checkpoint(tmp_path, *here.state())
    resumed = Trainer(copy.deepcopy(here.model).cpu(), N_ROWS, here.options)
    held = newest_checkpoint(tmp_path)
    assert held is not None
    resumed.load_state(*held)
    list(resumed.steps().run(batch, 8))
    steps = ReferenceSteps(exact.model, exact.rows, exact.dense, "squared")
    for part in [*batch.steps(8), *batch.steps(8)]:
        steps.step(part)
    assert resumed.epoch == 1
    assert largest_difference(resumed, exact) < 5e-3
