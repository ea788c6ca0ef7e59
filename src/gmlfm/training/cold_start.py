r"""Training for newcomers: the rows that stand for users and items without rows of their own, and the attributes beside them.

Items. Now and then a step shows some users the same items with the items' ids hidden behind the unknown row, a third of the
users' too. The student, who sees no ids, learns what the teacher says, which is the model itself with ids in sight, as far as
users differ:

.. math:: \hat y(u, \mathrm{unknown}, a_i) - \mathrm{mean}_{u'} \ \to \ \hat y(u, i, a_i) - \mathrm{mean}_{u'}

so that attributes learn the tastes that ids would keep to themselves. How much items of a kind are liked by all is left as it
is, since the few known items of a kind say little about the next one. All of them together are set so high that they get the
share of the first ten places which new items had of training's latest choices (new_item_level.py); where none was new, where
the median known item stands. Labels would teach the same with more noise.

The unknown user. After each epoch that row is fitted, with everything else frozen, to what known users chose last:

.. math:: \min_r \ \mathrm{loss}(\hat y_r) + \lambda \|r\|^2
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gmlfm.models.frozen import frozen_scores, scores_of_item_row, scores_of_row
from gmlfm.models.gradient import Attributes, GradientModel
from gmlfm.training.engines import Engine
from gmlfm.training.engines.device_batch import DeviceBatch
from gmlfm.training.new_item_level import new_item_level
from gmlfm.training.objectives import objective_named
from gmlfm.training.sampling.cold_start import Grid
from gmlfm.training.sampling.groups import Batch

_PULL = 0.05
_ITERATIONS = 10  # of L-BFGS an epoch; each begins where the last one ended
_LEVEL_USERS, _LEVEL_PAIRS = (16,), (16, 250)  # by which the unknown item's row is moved
Fields = Callable[[Tensor], Tensor | None]


class ColdStartTrainer:
    """One epoch's extra steps with ids hidden, so that the unknown rows and the attributes learn what ids would keep to
    themselves. sampler: what the epoch's batches gave, a ColdStartSampler or its twin on a device."""

    def __init__(
        self,
        model: GradientModel,
        table: Tensor,
        engine: Engine,
        size: int,
        sampler: Any,
        field_of_row: npt.NDArray[np.int16] | None,
        loss: str,
    ) -> None:
        self._model, self._table, self._engine, self._size, self._sampler = model, table, engine, size, sampler
        self._field_of_row = None if field_of_row is None else torch.from_numpy(field_of_row).long().to(table.device)
        new_items = sampler.ids.new_items
        self._loss, self._has_level = loss, new_items is not None and new_items.is_informative
        self._due, self._n_taken = 0.0, 0

    def after(self, n_groups: int) -> Iterator[float]:
        """The steps that are due after so many groups of training; their losses."""
        self._due += self._sampler.rate * -(-n_groups // self._size)
        yield from self._take(int(self._due))

    def end(self) -> Iterator[float]:
        """At the end of an epoch: one step at least, the level of unknown items, and the unknown user's row."""
        if not self._n_taken:
            yield from self._take(1)
        self._model.eval()
        self._set_level()
        fit_unknown_user(self._model, self._table, self._upload(self._sampler.latest()), self._loss, self._fields)

    def _take(self, n_steps: int) -> Iterator[float]:
        if n_steps:
            self._due -= n_steps
            self._n_taken += n_steps
            grid = Grid.within(self._size, self._sampler.group)
            batch = self._with_ids_hidden(self._sampler.draw_grid(n_steps, grid), n_steps, grid)
            for loss, _ in self._engine.run(batch, grid.n_users * grid.n_groups, "squared"):
                yield loss

    def _with_ids_hidden(self, batch: Batch | DeviceBatch, n_steps: int, grid: Grid) -> Batch | DeviceBatch:
        """The student's batch, with the labels that the teacher gives."""
        shown, ids, n_hidden = self._upload(batch), self._sampler.ids, grid.n_users // 3
        user_ids, item_ids = shown.user_ids.clone(), shown.item_ids.clone()
        item_ids[..., 0] = ids.unknown_item
        user_ids.view(n_steps, grid.n_users, grid.n_groups, -1)[:, :n_hidden, :, 0] = ids.unknown_user
        hidden = replace(shown, user_ids=user_ids, item_ids=item_ids)
        self._model.eval()
        teacher, student = (
            frozen_scores(self._model, self._table, *_attributes(side, self._fields)).view(n_steps, grid.n_users, -1)
            for side in (shown, hidden)
        )
        self._model.train()
        halves = (slice(n_hidden), slice(n_hidden, None))
        labels = torch.cat([_targets(teacher[:, users], student[:, users], self._has_level) for users in halves], dim=1)
        hidden = replace(hidden, labels=labels.view(shown.labels.shape))
        return hidden if isinstance(batch, DeviceBatch) else hidden.download()

    def _set_level(self) -> None:
        """Move the unknown item's row until unknown items stand, on the whole, where new ones did in training's choices."""
        if not self._has_level:
            return
        (batch, is_owned), ids = self._sampler.draw_rankings(), self._sampler.ids
        shown = self._upload(batch)
        item_ids = shown.item_ids.clone()
        item_ids[..., 0] = ids.unknown_item
        hidden = replace(shown, item_ids=item_ids)
        sides = [_attributes(side, self._fields) for side in (shown, hidden)]
        teacher, student = (frozen_scores(self._model, self._table, *side) for side in sides)
        owned = torch.from_numpy(is_owned).to(teacher.device)
        level = new_item_level(teacher, student, owned, self._sampler.n_items, ids.new_items)
        users, items = (_leading(side, *shape) for side, shape in zip(sides[1], (_LEVEL_USERS, _LEVEL_PAIRS), strict=True))
        move_unknown_item(self._model, self._table, users, items, level - float(student.mean()))

    def _upload(self, batch: Batch | DeviceBatch) -> DeviceBatch:
        return batch if isinstance(batch, DeviceBatch) else DeviceBatch.upload(batch, self._table.device)

    def _fields(self, ids: Tensor) -> Tensor | None:
        return None if self._field_of_row is None else self._field_of_row[ids]


def fit_unknown_user(model: GradientModel, table: Tensor, batch: DeviceBatch, loss: str, fields: Fields) -> None:
    """The row at the first place of every user, which is one for all; where the fit gives no number, it stays."""
    users, items = _attributes(batch, fields)
    index = int(users.ids[0, 0])
    row = table[index].clone().requires_grad_()
    scores, objective = scores_of_row(model, table, index, users, items), objective_named(loss, model)
    optimiser = torch.optim.LBFGS([row], max_iter=_ITERATIONS, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        value = objective(scores(row), batch.labels, batch.weights) + _PULL * row.square().sum()
        (row.grad,) = torch.autograd.grad(value, [row])
        return value.detach()

    optimiser.step(closure)  # type: ignore[no-untyped-call]
    if bool(row.isfinite().all()):
        table[index] = row.detach()


def move_unknown_item(model: GradientModel, table: Tensor, users: Attributes, items: Attributes, by: float) -> None:
    """Change the row at the first place of every item as little as moves their mean score by so much."""
    index = int(items.ids[0, 0, 0])
    scores = scores_of_item_row(model, table, index, users, items)
    table[index] = moved_row(lambda row: scores(row).mean(), table[index].clone(), by)


def moved_row(mean_score: Callable[[Tensor], Tensor], start: Tensor, by: float) -> Tensor:
    """The row near `start` at which a mean score is higher by so much; `start` where there is none that is finite.

    By Newton's method along the gradient, which for scores linear in the row is one step; a step that does not help is halved.
    """
    row = start
    mean, slope = _mean_and_slope(mean_score, row)
    target = mean + by
    for _ in range(_ITERATIONS):
        squares = float(slope.square().sum())
        if abs(target - mean) < 1e-3 * abs(by) or not squares > 1e-12:
            break
        step = (target - mean) / squares * slope
        for _ in range(_ITERATIONS):
            new_mean, new_slope = _mean_and_slope(mean_score, row + step)
            if abs(target - new_mean) < abs(target - mean):
                row, mean, slope = row + step, new_mean, new_slope
                break
            step = step / 2
        else:
            break
    return row if bool(row.isfinite().all()) else start


def _mean_and_slope(mean_score: Callable[[Tensor], Tensor], row: Tensor) -> tuple[float, Tensor]:
    row = row.detach().clone().requires_grad_()
    mean = mean_score(row)
    (slope,) = torch.autograd.grad(mean, [row])
    return float(mean.detach()), slope


def _targets(teacher: Tensor, student: Tensor, keeps_level: bool) -> Tensor:
    """(steps, users, items): what the teacher says less its mean over users, on top of the student's own mean; on the whole as
    high as the student is or, unless that is set otherwise, as the median item."""
    by_item, current = teacher.mean(1, keepdim=True), student.mean(1, keepdim=True)
    if keeps_level:
        return teacher - by_item + current
    return teacher - by_item + current + by_item.median(2, keepdim=True).values - current.mean(2, keepdim=True)


def _leading(side: Attributes, *shape: int) -> Attributes:
    """The first users, or the first items of the first users."""
    block = tuple(slice(size) for size in shape)
    return Attributes(side.ids[block], side.x[block], None if side.fields is None else side.fields[block])


def _attributes(batch: DeviceBatch, fields: Fields) -> tuple[Attributes, Attributes]:
    user_ids, item_ids = batch.user_ids.long(), batch.item_ids.long()
    return Attributes(user_ids, batch.user_x, fields(user_ids)), Attributes(item_ids, batch.item_x, fields(item_ids))
