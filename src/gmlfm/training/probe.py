"""A sample of training instances that is scored before training and after each epoch: has anything been learned?"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gmlfm.models.gradient import Attributes, GradientModel, gather
from gmlfm.training.engines.device_batch import DeviceBatch
from gmlfm.training.objectives import objective_named
from gmlfm.training.sampling.groups import Batch

_INSTANCES = 4096


class Reading(NamedTuple):
    """What the weights give on the sample. is_constant: every item of a group has the same score, in every group; where groups
    have one item, every instance has."""

    loss: float
    is_constant: bool


class Probe:
    """The first groups of a batch, some 4,096 instances, on the table's device, without dropout and without penalties.

    The same instances each time: a loss that is compared with its start then moves by what was learned, not by what was drawn.
    """

    def __init__(
        self, batch: Batch | DeviceBatch, device: torch.device, field_of_row: npt.NDArray[np.int16] | None, loss: str
    ) -> None:
        n_groups = max(1, _INSTANCES // batch.labels.shape[1])
        fields = None if field_of_row is None else torch.from_numpy(field_of_row).long().to(device)
        user_ids, user_x, item_ids, item_x, self._labels = (
            torch.as_tensor(array[:n_groups]).to(device).clone()  # a view would keep the whole batch
            for array in (batch.user_ids, batch.user_x, batch.item_ids, batch.item_x, batch.labels)
        )
        self._weights = None if batch.weights is None else torch.as_tensor(batch.weights[:n_groups]).to(device).clone()
        self._users, self._items = (
            Attributes(ids.long(), x, None if fields is None else fields[ids.long()])
            for ids, x in ((user_ids, user_x), (item_ids, item_x))
        )
        self._loss, self._is_grouped = loss, self._labels.shape[1] > 1
        self.is_degenerate = bool((self._labels == self._labels[0, 0]).all())  # a constant is right, and its loss says nothing
        sides = (self._items,) if self._is_grouped else (self._users, self._items)
        differs = any(bool((values != self._reference(values)).any()) for side in sides for values in (side.ids, side.x))
        self._can_differ = differs and not self.is_degenerate

    def __call__(self, model: GradientModel, table: Tensor) -> Reading:
        """Leaves the model in evaluation mode."""
        model.eval()
        with torch.no_grad():
            if model.whole_table:
                scores = model.checked_scores(model.transform_rows(table), self._users, self._items)
            else:
                distinct, (users, items) = gather(self._users, self._items)
                scores = model.checked_scores(model.transform_rows(table[distinct]), users, items)
            loss = objective_named(self._loss, model)(scores, self._labels, self._weights)
        return Reading(float(loss), self._can_differ and bool((scores == self._reference(scores)).all()))

    def _reference(self, values: Tensor) -> Tensor:
        """What each number is compared with: that of its group's first item or, where groups have one item, of the first."""
        return values[:, :1] if self._is_grouped else values[:1]
