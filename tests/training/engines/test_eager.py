"""The eager engine itself; the compiled ones are held against it in test_cpu.py and test_cuda.py."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from gmlfm.errors import OptionError
from gmlfm.models.afm import AFM
from gmlfm.models.fm import FM
from gmlfm.models.gradient import Attributes
from gmlfm.training.engines.eager import EagerEngine
from gmlfm.training.options import TrainingOptions
from gmlfm.training.row_trainer import RowTrainer
from tests.training.engines.twins import N_ROWS, batch_of


def engine_of(model: Any, loss: str = "squared") -> tuple[RowTrainer, EagerEngine]:
    trainer = RowTrainer(model, N_ROWS, TrainingOptions(optimiser="sgd", lr=0.1))
    return trainer, EagerEngine(trainer.model, trainer.rows, trainer.dense, loss)


@pytest.mark.parametrize("cls", [FM, AFM])
def test_a_step_goes_against_the_gradient_of_the_whole_table(cls: type[FM | AFM]) -> None:
    """Some attributes, no padding, have x = 0, which counts in AFM's attention: the rows at hand are numbered from 0."""
    trainer, engine = engine_of(cls(4, v_scale=0.3))
    batch = batch_of(12, 3, 3, 2)
    batch.user_x[::2, 0] = batch.item_x[:, ::2, 0] = 0.0
    table = trainer.table.clone().requires_grad_()
    sides = [
        Attributes(torch.from_numpy(ids).long(), torch.from_numpy(x))
        for ids, x in ((batch.user_ids, batch.user_x), (batch.item_ids, batch.item_x))
    ]
    loss = (trainer.model.scores(table, *sides) - torch.from_numpy(batch.labels)).square().mean()
    (gradient,) = torch.autograd.grad(loss, [table])
    assert engine.step(batch) == pytest.approx(float(loss.detach()), rel=1e-6)
    torch.testing.assert_close(trainer.table, (table - 0.1 * gradient).detach())


class NoNumbers(FM):
    def scores(self, rows: Tensor, user_side: Attributes, item_side: Attributes) -> Tensor:
        return super().scores(rows, user_side, item_side) * float("nan")


class Detached(FM):
    def scores(self, rows: Tensor, user_side: Attributes, item_side: Attributes) -> Tensor:
        return super().scores(rows.detach(), user_side, item_side)


def test_what_no_step_can_mend_is_refused_in_the_first() -> None:
    _, engine = engine_of(NoNumbers(4))
    with pytest.raises(OptionError, match=r"NoNumbers\.scores gives NaN or infinity in the first step, before anything was"):
        engine.step(batch_of(12, 3, 3, 2))
    _, engine = engine_of(Detached(4))
    with pytest.raises(OptionError, match=r"Detached\.scores does not depend on the rows it is given"):
        engine.step(batch_of(12, 3, 3, 2))


def test_a_loss_that_becomes_no_number_later_changes_nothing() -> None:
    trainer, engine = engine_of(FM(4))
    engine.step(batch_of(12, 3, 3, 2))
    before = trainer.table.clone()
    trainer.model.bias.data.fill_(float("nan"))  # type: ignore[union-attr]
    assert engine.step(batch_of(12, 3, 3, 2)) != engine.step(batch_of(12, 3, 3, 2))  # NaN
    assert torch.equal(trainer.table, before)
