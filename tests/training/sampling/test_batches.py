"""Training rows in groups: positives with their negatives, or instances with labels of their own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gmlfm import Dataset
from gmlfm.fitting.memory import MemoryPlan
from gmlfm.training.sampling.batches import BatchOptions, LabelledBatches, RankingBatches
from gmlfm.training.settings import Settings
from tests.contracts.checkerboard import checkerboard


@pytest.fixture(scope="module")
def data() -> Dataset:
    return checkerboard()


def ranking(data: Dataset, **options: object) -> RankingBatches:
    settings = Settings.make("gml-fm", "topn", {"history": "none", "n_negatives": 3, **options})
    batches = MemoryPlan(data, settings, "leave-one-out", {}, "cpu").selection_inputs().batches()
    assert isinstance(batches, RankingBatches)
    return batches


def labelled(data: Dataset, task: str) -> tuple[MemoryPlan, LabelledBatches]:
    plan = MemoryPlan(data, Settings.make("gml-fm", task, {}), "random", {}, "cpu")
    batches = plan.selection_inputs().batches()
    assert isinstance(batches, LabelledBatches)
    return plan, batches


def test_an_epoch_is_every_positive_once_with_its_negatives(data: Dataset) -> None:
    batches = ranking(data, batch_size=200)
    (batch,) = batches.epoch(0)
    assert batch.labels.size == batches.n_instances == 4 * len(batches.users)
    assert (batch.labels == [1.0, -1.0, -1.0, -1.0]).all()
    assert batches.groups_per_step == 50
    user_rows, item_rows = batches.encoded.user.ids[:, 0], batches.encoded.item.ids[:, 0]
    pairs = sorted(zip(batch.user_ids[:, 0].tolist(), batch.item_ids[:, 0, 0].tolist(), strict=True))
    assert pairs == sorted(zip(user_rows[batches.users].tolist(), item_rows[batches.items].tolist(), strict=True))
    (repeated,), (later,) = batches.epoch(0), batches.epoch(1)
    np.testing.assert_array_equal(batch.item_ids, repeated.item_ids)
    assert not np.array_equal(batch.item_ids, later.item_ids)
    assert not np.array_equal(batch.user_ids, later.user_ids)  # in another order


def test_large_epochs_come_in_batches_of_whole_steps(data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gmlfm.training.sampling.batches._INSTANCES_AT_ONCE", 500)
    batches = ranking(data, batch_size=200)
    sizes = [len(batch) for batch in batches.epoch(0)]
    assert sum(sizes) == len(batches.users)
    assert set(sizes[:-1]) == {100}  # two steps of 50 groups have 400 instances, three would have 600
    monkeypatch.setattr("gmlfm.training.sampling.batches._INSTANCES_AT_ONCE", 10)
    assert {len(batch) for batch in list(batches.epoch(0))[:-1]} == {50}


def test_weights_travel_with_their_rows(data: Dataset) -> None:
    batches = ranking(data)
    weighted = RankingBatches(
        batches.users,
        batches.items,
        batches.rows,
        batches.encoded,
        batches.ids,
        batches.negatives,
        batches.options,
        np.arange(len(batches.users), dtype=np.float32),
    )
    (batch,) = weighted.epoch(0)
    assert batch.weights is not None
    places = batch.weights.astype(int)
    assert batch.user_ids[:, 0].tolist() == batches.encoded.user.ids[batches.users[places], 0].tolist()


@pytest.mark.parametrize("task", ["rating", "implicit"])
def test_instances_come_once_with_their_labels(data: Dataset, task: str) -> None:
    plan, batches = labelled(data, task)
    (batch,) = batches.epoch(0)
    assert batch.labels.shape == (len(plan.split.train), 1)
    assert batches.n_instances == len(plan.split.train)
    if task == "rating":
        stars = data.interactions["label"].to_numpy()[plan.split.train]
        expected = (stars - stars.mean()) / stars.std()
    else:
        assert plan.instances is not None
        expected = plan.instances.labels[plan.split.train]
    np.testing.assert_allclose(np.sort(batch.labels[:, 0]), np.sort(expected), rtol=1e-5)
    assert batches.cold_start_sampler(0) is not None


def test_a_steps_size_follows_the_data_unless_it_is_given() -> None:
    options = BatchOptions()
    assert options.groups_per_step(1_000, 5) == 64 // 5
    assert options.groups_per_step(40 * 500, 5) == 100
    assert options.groups_per_step(10_000_000, 5) == 4096 // 5
    assert replace(options, batch_size=300).groups_per_step(10_000_000, 5) == 60
    assert replace(options, batch_size=2).groups_per_step(10_000_000, 5) == 1


def test_the_largest_batch_bounds_what_auto_takes() -> None:
    usual, raised = BatchOptions(n_negatives=1), BatchOptions(n_negatives=1, largest_batch=16384)
    assert [usual.groups_per_step(n, 2) for n in (4_000, 80_000, 2_000_000)] == [50, 1000, 2048]
    assert [raised.groups_per_step(n, 2) for n in (4_000, 80_000, 2_000_000)] == [50, 1000, 8192]
    assert raised.groups_per_step(2_000_000, 2, largest=32_768) == 8192
    assert BatchOptions(batch_size=64, largest_batch=16384).groups_per_step(2_000_000, 2) == 32
