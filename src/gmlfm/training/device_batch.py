"""Batches as tensors on a device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gmlfm.data.groups import Batch


@dataclass(frozen=True)
class DeviceBatch:
    """A Batch on the device; weights are there always."""

    asking_ids: Tensor
    asking_x: Tensor
    answering_ids: Tensor
    answering_x: Tensor
    labels: Tensor
    weights: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    @classmethod
    def upload(cls, batch: Batch, device: torch.device) -> DeviceBatch:
        weights = np.ones(len(batch), np.float32) if batch.weights is None else batch.weights
        parts = (batch.asking_ids, batch.asking_x, batch.answering_ids, batch.answering_x, batch.labels, weights)
        return cls(*(torch.from_numpy(np.ascontiguousarray(one)).to(device) for one in parts))

    def download(self) -> Batch:
        parts = (self.asking_ids, self.asking_x, self.answering_ids, self.answering_x, self.labels, self.weights)
        return Batch(*(one.cpu().numpy() for one in parts))

    def ids_alone(self) -> DeviceBatch:
        """The first attribute of each side."""
        return DeviceBatch(
            self.asking_ids[:, :1],
            self.asking_x[:, :1],
            self.answering_ids[..., :1],
            self.answering_x[..., :1],
            self.labels,
            self.weights,
        )

    def part(self, start: int, stop: int, padded_to: int) -> DeviceBatch:
        """Some of the groups, and behind them empty ones of weight 0."""
        more = padded_to - (stop - start)
        parts = (self.asking_ids, self.asking_x, self.answering_ids, self.answering_x, self.labels, self.weights)
        cut = [one[start:stop] for one in parts]
        if more:
            cut = [torch.cat([one, one.new_zeros(more, *one.shape[1:])]) for one in cut]
        return DeviceBatch(*(one.contiguous() for one in cut))
