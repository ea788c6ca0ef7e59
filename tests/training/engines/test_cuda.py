"""The engine on a GPU against the eager one in float64. Without a GPU, TRITON_INTERPRET=1 runs its kernels on the CPU, slowly."""

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
from gmlfm.models.fm import FM
from gmlfm.models.gmlfm import GMLFM
from gmlfm.models.gradient import GradientModel
from gmlfm.models.mf import MF
from gmlfm.models.transfm import TransFM
from gmlfm.training.checkpoint import newest_checkpoint, save_checkpoint
from gmlfm.training.engines.cuda import CudaEngine
from gmlfm.training.engines.eager import EagerEngine
from gmlfm.training.engines.packing import NoKernelError
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

pytestmark = pytest.mark.gpu
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def engine_of(trainer: RowTrainer) -> CudaEngine:
    spec = trainer.model.kernel_spec()
    assert spec is not None
    return CudaEngine(spec, trainer.rows, trainer.dense, trainer.options, graphs=DEVICE == "cuda")


def moved(trainer: RowTrainer) -> RowTrainer:
    """The same state on the device."""
    twin = RowTrainer(copy.deepcopy(trainer.model), N_ROWS, trainer.options, device=DEVICE)
    twin.load_state(*trainer.state())
    return twin


def started_like(trainer: RowTrainer) -> RowTrainer:
    """The same state on the CPU, sharing nothing."""
    twin = RowTrainer(copy.deepcopy(trainer.model).cpu(), N_ROWS, trainer.options)
    twin.load_state({name: tensor.detach().cpu().clone() for name, tensor in trainer.state()[0].items()}, trainer.state()[1])
    return twin


def differences(
    model: GradientModel, options: TrainingOptions, shape: tuple[int, int, int, int], size: int, weighted: bool = False
) -> tuple[float, float]:
    """The largest relative difference to eager steps in float64 after one step, and after some more. Losses count tenfold."""
    trainer = started(model, options)
    exact, on_device = in_double(trainer), moved(trainer)
    batch = batch_of(*shape, weighted=weighted)
    eager, engine = EagerEngine(exact.model, exact.rows, exact.dense, options.loss), engine_of(on_device)
    first_batch = next(batch.steps(size))
    ((loss, _),) = engine.run(first_batch, size)
    after_first = max(10 * abs(loss / eager.step(first_batch) - 1), largest_difference(on_device, exact))
    steps = list(batch.steps(size))
    expected = np.average([eager.step(step) for step in steps], weights=[len(step) for step in steps])
    ((loss, _),) = engine.run(batch, size)
    return after_first, max(abs(loss / expected - 1), largest_difference(on_device, exact))


@pytest.mark.parametrize("name", GML)
def test_gml_fm(name: str) -> None:
    torch.manual_seed(1)
    after_first, later = differences(GMLFM(**{"k": 9, "v_scale": 0.5, **GML[name]}), TrainingOptions(lr=1e-2), (23, 3, 4, 2), 8)
    assert after_first < 1e-3
    assert later < 5e-3


@pytest.mark.parametrize("model", [FM(7, v_scale=0.5), MF(20, v_scale=0.5)], ids=["fm", "mf"])
def test_models_without_distances(model: GradientModel) -> None:
    shape = (23, 1, 4, 1) if isinstance(model, MF) else (23, 3, 4, 2)
    after_first, later = differences(copy.deepcopy(model), TrainingOptions(lr=1e-2), shape, 8)
    assert after_first < 1e-3
    assert later < 5e-3


def step_differences(trainer: RowTrainer, batch: Batch) -> tuple[float, float]:
    """One step's loss and its state, each relative to an eager step in float64."""
    exact, on_device = in_double(trainer), moved(trainer)
    ((loss, _),) = engine_of(on_device).run(batch, len(batch))
    expected = EagerEngine(exact.model, exact.rows, exact.dense, trainer.options.loss).step(batch)
    return abs(loss / expected - 1), largest_difference(on_device, exact)


def test_matrix_factorization_does_not_look_at_the_x_of_ids() -> None:
    trainer = started(MF(20, v_scale=0.5), TrainingOptions(lr=1e-2))
    loss, state = step_differences(trainer, with_any_x_of_ids(batch_of(23, 1, 4, 1)))
    assert loss < 1e-4
    assert state < 1e-3


@pytest.mark.parametrize("user_width", [1, 3])
def test_near_points_far_from_the_origin_keep_their_digits(user_width: int) -> None:
    """|a|^2 + |b|^2 - 2 a.b of these has an error as large as the distances."""
    torch.manual_seed(1)
    trainer = far_away(started(GMLFM(6, **GML["identity"], v_scale=0.5), TrainingOptions(lr=1e-2)))
    loss, state = step_differences(trainer, batch_of(23, user_width, 4, 2))
    assert loss < 1e-3
    assert state < 1e-3


@pytest.mark.parametrize("loss", ["squared", "logistic", "bpr", "softmax"])
@pytest.mark.parametrize(("group", "item_width"), [(5, 3), (9, 2), (2, 17)])
def test_every_objective(loss: str, group: int, item_width: int) -> None:
    torch.manual_seed(1)
    after_first, later = differences(
        GMLFM(6, **GML["recommended"], v_scale=0.7), TrainingOptions(loss=loss, lr=1e-2), (11, 2, group, item_width), 4, True
    )
    assert after_first < 1e-3
    assert later < 5e-3


@pytest.mark.parametrize("optimiser", ["adam", "adagrad", "sgd"])
def test_every_optimiser(optimiser: str) -> None:
    torch.manual_seed(1)
    options = TrainingOptions(optimiser=optimiser, lr=1e-2, weight_decay=0.1)
    after_first, later = differences(GMLFM(6, **GML["recommended"], v_scale=0.7), options, (11, 2, 3, 3), 4)
    assert after_first < 1e-3
    assert later < 5e-3


def test_wide_tiles() -> None:
    torch.manual_seed(1)
    after_first, later = differences(GMLFM(64, **GML["recommended"], v_scale=0.2), TrainingOptions(lr=1e-3), (9, 2, 3, 17), 4)
    assert after_first < 1e-3
    assert later < 5e-3


def test_matrices_too_wide_for_a_program() -> None:
    torch.manual_seed(1)
    after_first, later = differences(GMLFM(130, **GML["recommended"], v_scale=0.2), TrainingOptions(lr=1e-3), (9, 2, 3, 2), 4)
    assert after_first < 1e-3
    assert later < 5e-3


def test_rows_that_every_instance_has_are_summed_in_pieces() -> None:
    torch.manual_seed(1)
    # 40 rows and 600 occurrences a step: some rows have more than a piece.
    after_first, later = differences(GMLFM(6, **GML["recommended"], v_scale=0.7), TrainingOptions(lr=1e-2), (150, 2, 5, 3), 120)
    assert after_first < 1e-3
    assert later < 5e-3


def test_a_loss_that_is_no_number_changes_nothing() -> None:
    trainer = moved(started(GMLFM(6, **GML["recommended"]), TrainingOptions()))
    batch = batch_of(20, 3, 3, 2)
    trainer.table[int(batch.user_ids[0, 0])] = float("inf")
    before = {name: tensor.clone() for name, tensor in trainer.state()[0].items()}
    with np.errstate(all="ignore"):
        assert np.isnan(next(iter(engine_of(trainer).run(batch, 8)))[0])
    assert all(torch.equal(tensor, before[name]) for name, tensor in trainer.state()[0].items() if "step" not in name)


def test_a_row_outside_the_table_is_refused() -> None:
    trainer = moved(started(FM(4), TrainingOptions()))
    batch = batch_of(6, 2, 2, 2)
    batch.item_ids[3, 1, 0] = N_ROWS
    with pytest.raises(DataError, match="a batch names row 40; the table has 40"):
        list(engine_of(trainer).run(batch, 6))


def test_begun_on_the_device_and_resumed_on_a_cpu(tmp_path: Path) -> None:
    torch.manual_seed(1)
    on_device = moved(started(GMLFM(6, **GML["recommended"], v_scale=0.7), TrainingOptions(lr=1e-2)))
    batch = batch_of(24, 3, 4, 2)
    exact = in_double(started_like(on_device))
    list(engine_of(on_device).run(batch, 8))
    on_device.epoch = 1
    save_checkpoint(tmp_path, *on_device.state())
    resumed = RowTrainer(copy.deepcopy(on_device.model).cpu(), N_ROWS, on_device.options)
    checkpoint = newest_checkpoint(tmp_path)
    assert checkpoint is not None
    resumed.load_state(*checkpoint)
    list(resumed.engine.run(batch, 8))
    eager = EagerEngine(exact.model, exact.rows, exact.dense, "squared")
    for step in [*batch.steps(8), *batch.steps(8)]:
        eager.step(step)
    assert resumed.epoch == 1
    assert largest_difference(resumed, exact) < 5e-3


@pytest.mark.parametrize(
    "model",
    [TransFM(4), MF(4, biases=False), MF(4, lambda_user=0.1)],
    ids=["transfm", "without linear weights", "l2"],
)
def test_what_has_no_kernel_on_a_gpu_says_so(model: GradientModel) -> None:
    with pytest.raises(NoKernelError, match="have no kernel on a GPU"):
        engine_of(moved(started(model, TrainingOptions())))
