"""Batches as tensors on a device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gmlfm.training.sampling.groups import Batch


@dataclass(frozen=True)
class DeviceBatch:
    """A Batch on the device; it always has weights."""

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
        arrays = (batch.user_ids, batch.user_x, batch.item_ids, batch.item_x, batch.labels, weights)
        return cls(*(torch.from_numpy(np.ascontiguousarray(array)).to(device) for array in arrays))

    def download(self) -> Batch:
        return Batch(*(tensor.cpu().numpy() for tensor in self._tensors()))

    def ids_only(self) -> DeviceBatch:
        """The id of each side, at x = 1."""
        user_x, item_x = torch.ones_like(self.user_x[:, :1]), torch.ones_like(self.item_x[..., :1])
        return DeviceBatch(self.user_ids[:, :1], user_x, self.item_ids[..., :1], item_x, self.labels, self.weights)

    def padded_slice(self, start: int, stop: int, n_groups: int) -> DeviceBatch:
        """The groups start to stop, and behind them empty ones of weight 0, n_groups in all."""
        n_padding = n_groups - (stop - start)
        tensors = [tensor[start:stop] for tensor in self._tensors()]
        if n_padding:
            tensors = [torch.cat([tensor, tensor.new_zeros(n_padding, *tensor.shape[1:])]) for tensor in tensors]
        return DeviceBatch(*(tensor.contiguous() for tensor in tensors))

    def _tensors(self) -> tuple[Tensor, ...]:
        return self.user_ids, self.user_x, self.item_ids, self.item_x, self.labels, self.weights
