"""Models, losses and optimisers without a kernel are trained by the eager engine, with the right numbers, and logged once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from gmlfm.errors import OptionError
from gmlfm.kernels.spec import KernelSpec, SumsSpec
from gmlfm.models.fm import FM
from gmlfm.models.gmlfm import GMLFM
from gmlfm.models.gradient import Attributes, GradientModel
from gmlfm.models.nfm import NFM
from gmlfm.models.pairwise import SideVectors
from gmlfm.training.engines import choose, engine_named
from gmlfm.training.engines.cpu import CpuEngine
from gmlfm.training.engines.eager import EagerEngine
from gmlfm.training.objectives import GROUPED, OBJECTIVES, register_loss
from gmlfm.training.options import TrainingOptions
from gmlfm.training.row_trainer import RowTrainer
from gmlfm.training.rows import DENSE_OPTIMISERS, ROW_OPTIMISERS, RowSGD, register_optimiser
from gmlfm.training.settings import Settings
from tests.training.engines.twins import N_ROWS, batch_of

LR = 0.1
REGISTRIES: tuple[Any, ...] = (OBJECTIVES, ROW_OPTIMISERS, DENSE_OPTIMISERS)


@pytest.fixture(autouse=True)
def _registries_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(choose, "_logged", set())
    before, grouped = [dict(registry) for registry in REGISTRIES], set(GROUPED)
    yield
    for registry, entries in zip(REGISTRIES, before, strict=True):
        registry.clear()
        registry.update(entries)
    GROUPED.intersection_update(grouped)


def absolute(scores: Tensor, labels: Tensor, weights: Tensor | None) -> Tensor:
    return (scores - labels).abs().mean()


def squared(scores: Tensor, labels: Tensor, weights: Tensor | None) -> Tensor:
    return (scores - labels).square().mean()


def trained(model: GradientModel, lr_scale: float = 1.0, objective: Any = squared, **options: Any) -> RowTrainer:
    """A trainer after one step of gradient descent, whose loss and table are checked against autograd over the whole table."""
    torch.manual_seed(2)
    model.eval()  # no dropout
    trainer = RowTrainer(model, N_ROWS, TrainingOptions(**{"optimiser": "sgd", "lr": LR, **options}))
    batch = batch_of(12, 3, 4, 2)
    leaf = trainer.table.clone().requires_grad_()
    attributes = [
        Attributes(torch.from_numpy(ids.astype(np.int64)), torch.from_numpy(x))
        for ids, x in ((batch.user_ids, batch.user_x), (batch.item_ids, batch.item_x))
    ]
    loss = objective(model.scores(model.transform_rows(leaf), *attributes), torch.from_numpy(batch.labels), None)
    (gradient,) = torch.autograd.grad(loss, [leaf])
    ((mean_loss, n_instances),) = trainer.engine.run(batch, 12)
    assert (mean_loss, n_instances) == (pytest.approx(float(loss.detach()), rel=1e-5), 48)
    torch.testing.assert_close(trainer.table, leaf.detach() - LR * lr_scale * gradient)
    return trainer


def logged(caplog: pytest.LogCaptureFixture, reason: str) -> list[int]:
    """The levels at which a reason was logged."""
    return [record.levelno for record in caplog.records if record.name == "gmlfm" and reason in record.getMessage()]


@dataclass(frozen=True)
class OtherSpec(KernelSpec):
    pass


@dataclass(frozen=True)
class ShiftedSpec(SumsSpec):
    shift: float = 1.0


class OtherFM(FM):
    def kernel_spec(self) -> KernelSpec | None:
        return OtherSpec(self.k, (self.bias,))


class ShiftedFM(FM):
    def kernel_spec(self) -> KernelSpec | None:
        return ShiftedSpec(self.k, (self.bias,))


class DoubledFM(FM):
    """Inherits FM's spec, which no longer says what it computes."""

    def side_vectors(self, rows: Tensor, attributes: Attributes, *, is_user: bool) -> SideVectors:
        side = super().side_vectors(rows, attributes, is_user=is_user)
        return SideVectors(2.0 * side.self_terms, side.vector)


class ScaledFM(FM):
    """Its spec leaves a parameter out."""

    def __init__(self, k: int) -> None:
        super().__init__(k)
        self.scale = torch.nn.Parameter(torch.ones(()))


class FMWithLoss(FM):
    losses: ClassVar[dict[str, Callable[..., Tensor]]] = {"mine": absolute}


class FMWithSquaredLoss(FM):
    losses: ClassVar[dict[str, Callable[..., Tensor]]] = {"squared": absolute}


def test_a_model_with_kernels_is_compiled() -> None:
    for model in (FM(4), GMLFM(4)):
        engine = trained(model).engine
        assert isinstance(engine, CpuEngine)
        assert not engine.takes_device_batches


def test_an_added_loss_is_trained_by_the_eager_engine(caplog: pytest.LogCaptureFixture) -> None:
    register_loss("absolute")(absolute)
    with caplog.at_level(logging.INFO, "gmlfm"):
        for _ in range(2):
            assert isinstance(trained(FM(4), objective=absolute, loss="absolute").engine, EagerEngine)
    assert logged(caplog, "the loss 'absolute' has no kernel") == [logging.WARNING]


def test_an_added_optimiser_is_trained_by_the_eager_engine(caplog: pytest.LogCaptureFixture) -> None:
    class RowHalfSGD(RowSGD):
        def change(self, rows: Tensor, gradient: Tensor) -> Tensor:
            return 0.5 * gradient

    register_optimiser("half-sgd", RowHalfSGD, torch.optim.SGD)
    with caplog.at_level(logging.INFO, "gmlfm"):
        for _ in range(2):
            assert isinstance(trained(FM(4), lr_scale=0.5, optimiser="half-sgd").engine, EagerEngine)
    assert logged(caplog, "the optimiser 'half-sgd' has no kernel") == [logging.WARNING]


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (OtherFM, "a OtherSpec has no kernel"),
        (ShiftedFM, "a ShiftedSpec has no kernel"),
        (DoubledFM, "DoubledFM has no kernel with these settings"),
        (ScaledFM, "ScaledFM has other parameters than its kernel spec"),
        (NFM, "NFM has no kernel with these settings"),
        (lambda k: GMLFM(k, distance="manhattan"), "GMLFM has no kernel with these settings"),
        (lambda k: GMLFM(k, weight=False), "GMLFM has no kernel with these settings"),
        (lambda k: GMLFM(k, form="factored"), "GMLFM has no kernel with these settings"),
    ],
)
def test_a_model_without_kernels_is_trained_by_the_eager_engine(
    make: Callable[[int], GradientModel], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "gmlfm"):
        for _ in range(2):
            assert isinstance(trained(make(4)).engine, EagerEngine)
    assert logged(caplog, reason) == [logging.INFO]
    with pytest.raises(OptionError, match=f"engine is 'compiled', but {reason}; use auto or eager."):
        trained(make(4), engine="compiled")


@pytest.mark.parametrize(("model", "loss"), [(FMWithLoss(4), "mine"), (FMWithSquaredLoss(4), "squared")])
def test_a_loss_that_a_model_brings_comes_before_the_registered_ones(model: GradientModel, loss: str) -> None:
    assert isinstance(trained(model, objective=absolute, loss=loss).engine, EagerEngine)
    with pytest.raises(
        OptionError, match=f"engine is 'compiled', but the loss '{loss}' of {type(model).__name__} has no kernel; use"
    ):
        trained(model, objective=absolute, loss=loss, engine="compiled")


@pytest.mark.parametrize("name", ["eager", "reference"])
def test_the_eager_engine_by_its_name_and_that_of_old_runs(name: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "gmlfm"):
        assert isinstance(trained(FM(4), engine=name).engine, EagerEngine)
    assert not caplog.records
    assert Settings.make("fm", "topn", {"engine": name}).training.engine == "eager"


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(OptionError, match="engine is 'compild'; did you mean 'compiled'"):
        engine_named("compild")
