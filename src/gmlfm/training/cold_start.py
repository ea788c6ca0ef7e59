r"""Training for newcomers: the rows that stand for whoever has none of their own, and the attributes beside them.

Tastes. Now and then a step shows some users the same items with the items' ids hidden behind the unknown row, a third of the
users' too. It learns what the model itself says while it sees the ids, as far as users differ:

.. math:: \hat y(u, \mathrm{unknown}, a_i) - \mathrm{mean}_{u'} \ \to \ \hat y(u, i, a_i) - \mathrm{mean}_{u'}

so that attributes learn the tastes that ids would keep to themselves. How much items of a kind are liked by all is left as it
is, since the few known items of a kind say little about the next one. All of them together are set where the known item in the
middle stands; higher where the data say that what people choose is mostly new (`odds`: each second-hand ticket is sold once).
Labels would teach the same with more noise.

The unknown user. After each epoch that row is fitted, with everything else frozen, to what known users chose last:

.. math:: \min_r \ \mathrm{loss}(\hat y_r) + \lambda \|r\|^2
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gmlfm.models.base import Attributes, GradientModel
from gmlfm.models.frozen import frozen_scores, scores_of_row
from gmlfm.training.engines.device_batch import DeviceBatch
from gmlfm.training.engines.eager import Steps
from gmlfm.training.objectives import OBJECTIVES
from gmlfm.training.sampling.cold_start import Grid
from gmlfm.training.sampling.groups import Batch

_PULL = 0.05
_ITERATIONS = 10  # of L-BFGS an epoch; each begins where the last one ended


class ColdStartTrainer:
    """The part of one epoch that is trained for newcomers. meetings: what the epoch's batches gave."""

    def __init__(
        self,
        model: GradientModel,
        table: Tensor,
        steps: Steps,
        size: int,
        cold_start_sampler: Any,
        field_of_row: npt.NDArray[np.int16] | None,
        loss: str,
    ) -> None:
        self._model, self._table, self._steps, self._size, self._meetings = model, table, steps, size, cold_start_sampler
        self._field_of_row = None if field_of_row is None else torch.from_numpy(field_of_row).long().to(table.device)
        self._loss, self._level = loss, _level(cold_start_sampler.odds, loss)
        self._due, self._taken = 0.0, 0

    def after(self, n_groups: int) -> Iterator[float]:
        """The steps that are due after so many groups of training; their losses."""
        self._due += self._meetings.cold_start_rate * -(-n_groups // self._size)
        yield from self._take(int(self._due))

    def end(self) -> Iterator[float]:
        """At the end of an epoch: one step at least, and the unknown user's row."""
        if not self._taken:
            yield from self._take(1)
        self._model.eval()
        fit_unknown_user(self._model, self._table, self._uploaded(self._meetings.latest()), self._loss, self._fields)

    def _take(self, n_steps: int) -> Iterator[float]:
        if n_steps:
            self._due -= n_steps
            self._taken += n_steps
            grid = Grid.within(self._size, self._meetings.group)
            batch = self._hidden(self._meetings.at_random(n_steps, grid), n_steps, grid)
            for loss, _ in self._steps.run(batch, grid.n_users * grid.rows, "squared"):
                yield loss

    def _hidden(self, batch: Any, n_steps: int, grid: Grid) -> Any:
        """The same with ids hidden, and the labels that teach tastes."""
        shown, ids, n_hidden = self._uploaded(batch), self._meetings.ids, grid.n_users // 3
        user_ids, item_ids = shown.user_ids.clone(), shown.item_ids.clone()
        item_ids[..., 0] = ids.unknown_item
        user_ids.view(n_steps, grid.n_users, grid.rows, -1)[:, :n_hidden, :, 0] = ids.unknown_user
        hidden = replace(shown, user_ids=user_ids, item_ids=item_ids)
        self._model.eval()
        said, heard = (
            frozen_scores(self._model, self._table, *_sides(one, self._fields)).view(n_steps, grid.n_users, -1)
            for one in (shown, hidden)
        )
        self._model.train()
        labels = torch.cat(
            [_tastes(said[:, at], heard[:, at], self._level) for at in (slice(n_hidden), slice(n_hidden, None))], dim=1
        )
        hidden = replace(hidden, labels=labels.view(shown.labels.shape))
        return hidden if isinstance(batch, DeviceBatch) else hidden.download()

    def _uploaded(self, batch: Batch | DeviceBatch) -> DeviceBatch:
        return batch if isinstance(batch, DeviceBatch) else DeviceBatch.upload(batch, self._table.device)

    def _fields(self, ids: Tensor) -> Tensor | None:
        return None if self._field_of_row is None else self._field_of_row[ids]


def fit_unknown_user(model: GradientModel, table: Tensor, batch: DeviceBatch, loss: str, fields: Any) -> None:
    """The row at the first place of those who ask, which is one for all; where no number comes of it, it stays."""
    user_side, item_side = _sides(batch, fields)
    at = int(user_side.ids[0, 0])
    row = table[at].clone().requires_grad_()
    scores, objective = scores_of_row(model, table, at, user_side, item_side), OBJECTIVES[loss]
    optimiser = torch.optim.LBFGS([row], max_iter=_ITERATIONS, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        value = objective(scores(row), batch.labels, batch.weights) + _PULL * row.square().sum()
        (row.grad,) = torch.autograd.grad(value, [row])
        return value.detach()

    optimiser.step(closure)  # type: ignore[no-untyped-call]
    if bool(row.isfinite().all()):
        table[at] = row.detach()


def _tastes(said: Tensor, heard: Tensor, level: float) -> Tensor:
    """(steps, users, items): what was said less its mean over users, on top of the mean of what is heard now; on the whole as
    high as the item in the middle, and `level` at least."""
    by_item, now = said.mean(1, keepdim=True), heard.mean(1, keepdim=True)
    middle = by_item.median(2, keepdim=True).values.clamp_min(level)
    return said - by_item + now + middle - now.mean(2, keepdim=True)


def _level(odds: float | None, loss: str) -> float:
    """The score of what has these odds, under the losses that score by odds."""
    if odds is None or odds <= 0 or loss not in ("squared", "logistic"):
        return float("-inf")
    return (odds - 1) / (odds + 1) if loss == "squared" else math.log(odds)


def _sides(batch: DeviceBatch, fields: Any) -> tuple[Attributes, Attributes]:
    user_side, item_side = batch.user_ids.long(), batch.item_ids.long()
    return Attributes(user_side, batch.user_x, fields(user_side)), Attributes(item_side, batch.item_x, fields(item_side))
