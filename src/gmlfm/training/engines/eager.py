"""The steps as PyTorch takes them, operation by operation: right for every model and on every device. The compiled engines are
tested against this one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gmlfm.errors import OptionError
from gmlfm.models.gradient import Attributes, GradientModel
from gmlfm.training.objectives import objective_named
from gmlfm.training.rows import AllRows, Distinct, RowOptimiser
from gmlfm.training.sampling.groups import Batch


class EagerEngine:
    takes_device_batches = False

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
        self._distinct = AllRows(n_rows) if model.whole_table else Distinct(n_rows)
        self._field_of_row = field_of_row
        self._name, self._has_stepped = type(model).__name__, False

    def run(self, batch: Batch, groups_per_step: int, loss: str | None = None) -> Iterator[tuple[float, int]]:
        for step_batch in batch.steps(groups_per_step):
            yield self.step(step_batch, loss), step_batch.labels.size

    def step(self, batch: Batch, loss_name: str | None = None) -> float:
        """One step: distinct rows in, their gradients out."""
        n_user_ids = batch.user_ids.size
        distinct, places = self._distinct(np.concatenate([batch.user_ids.ravel(), batch.item_ids.ravel()]))
        rows = torch.from_numpy(distinct.astype(np.int64)).to(self.device)
        values = self.rows.table[rows]
        leaf = values.clone().requires_grad_()
        ids = torch.from_numpy(places.astype(np.int64)).to(self.device)
        user_side = self._side(ids[:n_user_ids], batch.user_ids, batch.user_x)
        item_side = self._side(ids[n_user_ids:], batch.item_ids, batch.item_x)
        transformed = self.model.transform_rows(leaf)
        weights = None if batch.weights is None else self._tensor(batch.weights)
        objective, labels = objective_named(loss_name or self.loss, self.model), self._tensor(batch.labels)
        score_sets = self.model.score_sets(transformed, user_side, item_side)
        losses = [objective(self._checked(scores), labels, weights) for scores in score_sets]
        loss = losses[0] if len(losses) == 1 else torch.stack(losses).sum()
        penalty = self.model.penalty(leaf, user_side, item_side)
        if penalty is not None:
            loss = loss + penalty
        self.dense.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        if leaf.grad is None:
            raise OptionError(f"{self._name}.scores does not depend on the rows it is given, so there is nothing to learn.")
        result = float(loss.detach())
        if np.isfinite(result):
            self.rows.step(rows, values, leaf.grad)
            self.dense.step()
            self._has_stepped = True
        return result

    def _side(self, places: Tensor, ids: npt.NDArray[np.int32], x: npt.NDArray[np.float32]) -> Attributes:
        """The places of these ids among the rows at hand; row 0 of the table is padding, wherever it stands among them."""
        return Attributes(places.view(ids.shape), self._tensor(x), self._fields(ids), self._tensor(ids != 0))

    def _checked(self, scores: Tensor) -> Tensor:
        """Before anything was learned, no learning rate is to blame."""
        if not self._has_stepped and not bool(torch.isfinite(scores).all()):
            raise OptionError(
                f"{self._name}.scores gives NaN or infinity in the first step, before anything was learned; check its equation "
                "and initial_rows."
            )
        return scores

    def _fields(self, ids: npt.NDArray[np.int32]) -> Tensor | None:
        return None if self._field_of_row is None else self._tensor(self._field_of_row[ids].astype(np.int64))

    def _tensor(self, values: np.ndarray[Any, Any]) -> Tensor:
        return torch.from_numpy(np.array(values)).to(self.device)
