"""The steps as torch takes them, operation by operation: right for every model and on every device, and what the fast ones
are held against."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gmlfm.models.base import Attributes, GradientModel
from gmlfm.training.objectives import OBJECTIVES
from gmlfm.training.rows import Distinct, Everything, RowOptimiser
from gmlfm.training.sampling.groups import Batch


class Steps(Protocol):
    """Takes the steps of a batch, `size` groups each, and changes the table, the dense parameters and their moments."""

    def run(self, batch: Batch, size: int, loss: str | None = None) -> Iterator[tuple[float, int]]:
        """After one step or some: their mean loss and how many instances they had. A loss that is no number changed nothing.

        loss: another one than training's own.
        """
        ...


class ReferenceSteps:
    def __init__(
        self,
        model: GradientModel,
        rows: RowOptimiser,
        dense: torch.optim.Optimizer,
        loss: str,
        field_of_row: npt.NDArray[np.int16] | None = None,
    ) -> None:
        self.model, self.rows, self.dense, self.loss = model, rows, dense, loss
        self.device = rows.table.device
        n_rows = len(rows.table)
        self._distinct = Everything(n_rows) if model.whole_table else Distinct(n_rows)
        self._field_of_row = field_of_row

    def run(self, batch: Batch, size: int, loss: str | None = None) -> Iterator[tuple[float, int]]:
        for part in batch.steps(size):
            yield self.step(part, loss), part.labels.size

    def step(self, batch: Batch, name: str | None = None) -> float:
        """One step: distinct rows in, their gradients out."""
        user_width = batch.user_ids.size
        flat = np.concatenate([batch.user_ids.ravel(), batch.item_ids.ravel()])
        distinct, places = self._distinct(flat)
        rows = torch.from_numpy(distinct.astype(np.int64)).to(self.device)
        values = self.rows.table[rows]
        leaf = values.clone().requires_grad_()
        inside = torch.from_numpy(places.astype(np.int64)).to(self.device)
        user_side = Attributes(
            inside[:user_width].view(batch.user_ids.shape), self._tensor(batch.user_x), self._fields(batch.user_ids)
        )
        item_side = Attributes(
            inside[user_width:].view(batch.item_ids.shape),
            self._tensor(batch.item_x),
            self._fields(batch.item_ids),
        )
        ready = self.model.transform_rows(leaf)
        weights = None if batch.weights is None else self._tensor(batch.weights)
        objective, labels = OBJECTIVES[name or self.loss], self._tensor(batch.labels)
        losses = [objective(scores, labels, weights) for scores in self.model.score_sets(ready, user_side, item_side)]
        loss = losses[0] if len(losses) == 1 else torch.stack(losses).sum()
        penalty = self.model.penalty(leaf, user_side, item_side)
        if penalty is not None:
            loss = loss + penalty
        self.dense.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        gradient = leaf.grad
        assert gradient is not None
        result = float(loss.detach())
        if np.isfinite(result):
            self.rows.step(rows, values, gradient)
            self.dense.step()
        return result

    def _fields(self, ids: npt.NDArray[np.int32]) -> Tensor | None:
        return None if self._field_of_row is None else self._tensor(self._field_of_row[ids].astype(np.int64))

    def _tensor(self, values: np.ndarray[Any, Any]) -> Tensor:
        return torch.from_numpy(np.array(values)).to(self.device)
