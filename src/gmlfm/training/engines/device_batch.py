"""Batches as tensors on a device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gmlfm.training.sampling.groups import Batch


@dataclass(frozen=True)
class DeviceBatch:
    """A Batch on the device; weights are there always."""

    user_ids: Tensor
    user_x: Tensor
    item_ids: Tensor
    item_x: Tensor
    labels: Tensor
    weights: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    @classmethod
    def upload(cls, batch: Batch, device: torch.device) -> DeviceBatch:
        weights = np.ones(len(batch), np.float32) if batch.weights is None else batch.weights
        parts = (batch.user_ids, batch.user_x, batch.item_ids, batch.item_x, batch.labels, weights)
        return cls(*(torch.from_numpy(np.ascontiguousarray(one)).to(device) for one in parts))

    def download(self) -> Batch:
        parts = (self.user_ids, self.user_x, self.item_ids, self.item_x, self.labels, self.weights)
        return Batch(*(one.cpu().numpy() for one in parts))

    def ids_alone(self) -> DeviceBatch:
        """The first attribute of each side."""
        return DeviceBatch(
            self.user_ids[:, :1],
            self.user_x[:, :1],
            self.item_ids[..., :1],
            self.item_x[..., :1],
            self.labels,
            self.weights,
        )

    def part(self, start: int, stop: int, padded_to: int) -> DeviceBatch:
        """Some of the groups, and behind them empty ones of weight 0."""
        more = padded_to - (stop - start)
        parts = (self.user_ids, self.user_x, self.item_ids, self.item_x, self.labels, self.weights)
        cut = [one[start:stop] for one in parts]
        if more:
            cut = [torch.cat([one, one.new_zeros(more, *one.shape[1:])]) for one in cut]
        return DeviceBatch(*(one.contiguous() for one in cut))
