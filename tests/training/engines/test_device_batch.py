from __future__ import annotations

import numpy as np
import torch

from gmlfm.training.engines.device_batch import DeviceBatch
from tests.training.engines.twins import batch_of

CPU = torch.device("cpu")


def test_up_and_down_it_is_the_same_batch_with_weights() -> None:
    batch = batch_of(5, 2, 3, 2)
    again = DeviceBatch.upload(batch, CPU).download()
    for name in ("user_ids", "user_x", "item_ids", "item_x", "labels"):
        np.testing.assert_array_equal(getattr(again, name), getattr(batch, name))
    assert again.weights is not None
    assert (again.weights == 1.0).all()
    weighted = batch_of(5, 2, 3, 2, weighted=True)
    np.testing.assert_array_equal(DeviceBatch.upload(weighted, CPU).weights.numpy(), weighted.weights)


def test_a_slice_is_padded_with_groups_of_no_weight() -> None:
    batch = DeviceBatch.upload(batch_of(5, 2, 3, 2, weighted=True), CPU)
    part = batch.padded_slice(3, 5, 4)
    assert len(part) == 4
    assert torch.equal(part.item_ids[:2], batch.item_ids[3:])
    assert part.weights[2:].tolist() == [0.0, 0.0]
    assert int(part.item_ids[2:].abs().sum()) == 0


def test_ids_alone() -> None:
    batch = DeviceBatch.upload(batch_of(5, 2, 3, 2), CPU).ids_only()
    assert batch.user_ids.shape == (5, 1)
    assert batch.item_ids.shape == (5, 3, 1)


def test_an_id_alone_has_x_1_whatever_came() -> None:
    uploaded = DeviceBatch.upload(batch_of(5, 2, 3, 2), CPU)
    uploaded.user_x[:], uploaded.item_x[:] = 0.0, 3.0
    batch = uploaded.ids_only()
    assert torch.equal(batch.user_x, torch.ones(5, 1))
    assert torch.equal(batch.item_x, torch.ones(5, 3, 1))
