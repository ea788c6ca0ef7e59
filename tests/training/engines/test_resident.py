"""Batches drawn on a device, here on the CPU, keep the rules of RankingBatches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gmlfm import load_dataset
from gmlfm.data.dataset import Dataset
from gmlfm.data.encoding import Encoder
from gmlfm.data.splits import make_split
from gmlfm.fitting.memory import MemoryPlan
from gmlfm.training.engines.resident import ResidentBatches
from gmlfm.training.sampling.batches import BatchOptions, RankingBatches
from gmlfm.training.sampling.cold_start import Grid
from gmlfm.training.sampling.groups import IdRows
from gmlfm.training.sampling.negatives import TrainingNegatives, training_sampler
from gmlfm.training.settings import Settings
from tests.training.sampling.test_availability import market


def batches_of(data: Dataset, options: BatchOptions) -> RankingBatches:
    rows = make_split(data, "leave-one-out", seed=0).train
    encoder = Encoder.fit(data, rows)
    encoded = encoder.encode(data)
    users, items = data.user_numbers[rows], data.item_numbers[rows]
    sampler = training_sampler(data, rows)
    negatives = TrainingNegatives(sampler, users, options.n_negatives, options.seed, options.fresh)
    counts = np.bincount(items, minlength=len(encoded.item))
    id_rows = IdRows.from_counts(encoder.fields, counts, encoded.item)
    return RankingBatches(users, items, rows, encoded, id_rows, negatives, options)


def test_the_same_rules_on_the_device(small_market: Path) -> None:
    options = BatchOptions(batch_size=300, n_negatives=3, cold_start_rate=0.0)
    host = batches_of(load_dataset(small_market), options)
    resident = ResidentBatches(host, torch.device("cpu"))
    (batch,) = resident.epoch(0)
    assert batch.labels.shape == (len(host.users), 4)
    assert resident.groups_per_step == host.groups_per_step == 75

    # Every positive once, with its own user and context.
    def positives(user_side: Any, item_side: Any) -> list[tuple[int, ...]]:
        return sorted((*map(int, user), *map(int, item)) for user, item in zip(user_side, item_side, strict=True))

    host_batches = list(host.epoch(0))
    user_side = np.concatenate([host_batch.user_ids for host_batch in host_batches])
    item_side = np.concatenate([host_batch.item_ids[:, 0] for host_batch in host_batches])
    assert positives(batch.user_ids.numpy(), batch.item_ids[:, 0].numpy()) == positives(user_side, item_side)
    assert batch.user_x.shape[1] == host_batches[0].user_x.shape[1]
    # Negatives are items that the user has not in training; what has no positive has the row of negatives only.
    drawn = batch.item_ids[:, 1:, 0].numpy()
    positive_pairs = {(int(user), int(item)) for user, item in zip(user_side[:, 0], item_side[:, 0], strict=True)}
    pairs = {(int(user), int(item)) for user, items in zip(batch.user_ids[:, 0], drawn, strict=True) for item in items}
    assert not positive_pairs & pairs
    trained = set(item_side[:, 0].tolist())
    assert set(drawn.ravel().tolist()) <= trained | {host.ids.negative_only_row}
    assert (drawn == host.ids.negative_only_row).any()


def test_draws_differ_by_epoch_and_come_again(small_market: Path) -> None:
    host = batches_of(load_dataset(small_market), BatchOptions(n_negatives=2, cold_start_rate=0.3))
    resident = ResidentBatches(host, torch.device("cpu"))
    batch, same_epoch, next_epoch = (next(iter(resident.epoch(number))) for number in (0, 0, 1))
    assert torch.equal(batch.item_ids, same_epoch.item_ids)
    assert not torch.equal(batch.item_ids, next_epoch.item_ids)


def test_cold_start_steps_on_the_device_are_drawn_as_on_the_host(small_market: Path) -> None:
    host = batches_of(load_dataset(small_market), BatchOptions(n_negatives=2, cold_start_rate=0.3))
    resident = ResidentBatches(host, torch.device("cpu"))
    sampler, host_sampler = resident.cold_start_sampler(0), host.cold_start_sampler(0)
    assert sampler is not None
    assert host_sampler is not None
    grid = Grid(n_users=400, n_groups=5)
    batch, host_batch = sampler.draw_grid(4, grid), host_sampler.draw_grid(4, grid)
    assert batch.labels.shape == host_batch.labels.shape == (4 * 400 * 5, 3)
    user_side, item_side = batch.user_ids.view(4, 400, 5, -1), batch.item_ids.view(4, 400, 5, 3, -1)
    assert bool((user_side == user_side[:, :, :1]).all())
    assert bool((item_side == item_side[:, :1]).all())
    users = set(host.encoded.user.ids[host.users, 0].tolist())
    items = set(host.encoded.item.ids[host.ids.trained_items, 0].tolist())
    for ids in ((batch.user_ids, batch.item_ids), (host_batch.user_ids, host_batch.item_ids)):
        assert {int(row) for row in ids[0][:, 0]} <= users
        assert {int(row) for row in ids[1][..., 0].flatten()} <= items
    # All users alike, however many rows they have: the busiest is drawn about as often on both, and not by the number of rows.
    busiest = int(host.encoded.user.ids[np.bincount(host.users).argmax(), 0])
    drawn = [float(np.mean(np.asarray(ids[:, 0]) == busiest)) for ids in (batch.user_ids, host_batch.user_ids)]
    assert max(drawn) < 3 / len(users) < np.bincount(host.users).max() / len(host.users)
    same_sampler = resident.cold_start_sampler(0)
    assert same_sampler is not None
    assert torch.equal(same_sampler.draw_grid(4, grid).item_ids, batch.item_ids)
    assert batches_of(load_dataset(small_market), BatchOptions(cold_start_rate=0.0)).cold_start_sampler(0) is None


def test_fixed_negatives_stay_beside_their_positive(small_market: Path) -> None:
    host = batches_of(load_dataset(small_market), replace(BatchOptions(n_negatives=2, cold_start_rate=0.0), fresh=False))
    resident = ResidentBatches(host, torch.device("cpu"))

    def rows(number: int) -> list[tuple[int, ...]]:
        (batch,) = resident.epoch(number)
        ids = zip(batch.user_ids, batch.item_ids, strict=True)
        return sorted((*map(int, user), *map(int, items.ravel())) for user, items in ids)

    assert rows(0) == rows(1)


@pytest.mark.parametrize("fresh", [True, False])
def test_negatives_that_depend_on_time_come_from_the_host(fresh: bool) -> None:
    data, options = market(), BatchOptions(n_negatives=3, cold_start_rate=0.1, fresh=fresh)
    plan = MemoryPlan(
        data, Settings.make("fm", "topn", {"n_negatives": 3, "fresh": fresh, "history": "none"}), "global-time", {}, "cpu"
    )
    host = plan.selection_inputs().batches()
    assert isinstance(host, RankingBatches)
    assert host.options == options
    resident = ResidentBatches(host, torch.device("cpu"))

    def groups(ids: Any) -> list[tuple[int, ...]]:
        return sorted(tuple(int(row) for row in np.asarray(group).ravel()) for group in ids)

    for number in (0, 1):
        host_ids = np.concatenate([batch.item_ids for batch in host.epoch(number)])
        device_ids = torch.cat([batch.item_ids for batch in resident.epoch(number)])
        assert groups(device_ids) == groups(host_ids)
        assert (host_ids[:, 1:, 0] == host.ids.negative_only_row).any()
    sampler = resident.cold_start_sampler(0)
    assert sampler is not None
    assert len(sampler.latest().labels) == len(np.unique(host.users))
