"""Batches with histories from a folder of several shards show each target as data in memory show it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gmlfm import Schema
from gmlfm.data.prepared import PreparedData
from gmlfm.data.restoring import restore
from gmlfm.data.shard_histories import ShardUsers
from gmlfm.data.sources.preparing import prepare
from gmlfm.data.splits import TEST, TRAIN, VALIDATION
from gmlfm.fitting.memory import MemoryPlan
from gmlfm.fitting.run import sequence_spec, spec_of
from gmlfm.training.sampling.history_batches import TargetBatches
from gmlfm.training.sampling.history_shards import HistoryShards
from gmlfm.training.settings import Settings
from tests.fitting.catalogues import write_catalogue

Shown = list[tuple[Any, ...]]
SHAPES = ("unsold", "repeats", "context", "rated", "events", "sold-once-listed")
PARTS = {"none": (TRAIN,), "validation": (TRAIN, VALIDATION), "all": (TRAIN, VALIDATION, TEST)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., PreparedData]:
    made: dict[tuple[str, str], PreparedData] = {}

    def make(shape: str, split: str = "leave-one-out") -> PreparedData:
        if (shape, split) not in made:
            path = write_catalogue(tmp_path_factory.mktemp("shards") / "data", shape)
            schema = Schema.from_toml(path / "dataset.toml")
            made[shape, split] = prepare(schema, path, path / "p", split=split, rows_per_bucket=160)
        return made[shape, split]

    return make


def settings_of(model: str = "fm", **given: Any) -> Settings:
    roles = {} if model == "sasrec" else {"history": "last,past", "history_length": 4}
    values = {"k": 2, "threads": 1, "cold_start_rate": 0.0, "batch_size": 30, **roles, **given}
    changes = values.pop("changes_with_time", False)
    return Settings.make(model, "topn", values).for_data(is_ordered=True, n_candidates=150, changes_with_time=changes)


def shards_of(data: PreparedData, settings: Settings, parts: tuple[int, ...] = (TRAIN,), **ranks: int) -> HistoryShards:
    reads_sequences = settings.info.cls.reads_sequences
    spec = sequence_spec(settings) if reads_sequences else spec_of(data.info.fields, settings)
    assert spec is not None
    choices = {"shares_negatives": settings.shares_negatives, "reads_sequences": reads_sequences}
    return HistoryShards(data, settings.batches, spec, settings.history, parts, **choices, **ranks)


def in_memory(data: PreparedData, settings: Settings, refit: str = "none") -> TargetBatches:
    whole, split, _ = restore(data)
    plan = MemoryPlan(whole, settings, split.name, {}, "cpu")
    plan.split, plan.settings = split, settings
    rows = np.sort(np.concatenate([split.train, split.validation, split.test][: len(PARTS[refit])]))
    batches = plan._inputs(rows).batches()
    assert isinstance(batches, TargetBatches)
    return batches


def shown(batches: TargetBatches, n_epochs: int = 1) -> Shown:
    """Of each target: the item, the window of its history, all that its user had before, and its weight."""
    rows: Shown = []
    for number in range(n_epochs):
        for batch in batches.epoch(number):
            for place, target in enumerate(batch.targets.tolist()):
                window = batch.events[batch.row_start[place] : batch.row_stop[place]].tolist()
                before = slice(batch.had.start[place], batch.had.stop[place])
                had = batch.had.items[before][batch.had.is_had[before]].tolist()
                weight = None if batch.weights is None else float(batch.weights[place])
                rows.append((target, window, had, weight))
    return sorted(rows, key=repr)


@pytest.mark.parametrize("refit", list(PARTS))
@pytest.mark.parametrize("shape", SHAPES)
def test_targets_histories_and_masks_are_those_of_memory(folder: Callable[..., PreparedData], shape: str, refit: str) -> None:
    data, settings = folder(shape), settings_of(changes_with_time=shape == "sold-once-listed")
    assert data.n_shards > 2
    expected, batches = shown(in_memory(data, settings, refit)), shards_of(data, settings, PARTS[refit])
    assert shown(batches) == expected
    assert len(expected) == batches.n_instances
    assert max(len(window) for _, window, _, _ in expected) == 4
    assert any(had for _, _, had, _ in expected) == (shape != "repeats")


@pytest.mark.parametrize("leak", ["validation", "later"])
def test_a_planted_leak_is_seen(folder: Callable[..., PreparedData], leak: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Held-out rows among the history of training rows, or rows that are not before them."""
    histories = ShardUsers.histories

    def leaking(users: ShardUsers, visible: Any) -> Any:
        if leak == "later":
            found = histories(users, visible)
            return found.__class__(**{**vars_of(found), "row_order": found.row_order + 1})
        return histories(users, np.arange(len(users.shard.users)))

    # By time, so that held-out rows of a user may come before training rows of none, but after all of theirs: the split is random.
    data, settings = folder("unsold", "random"), settings_of()
    expected = shown(in_memory(data, settings))
    assert shown(shards_of(data, settings)) == expected
    monkeypatch.setattr(ShardUsers, "histories", leaking)
    assert shown(shards_of(data, settings)) != expected


def vars_of(histories: Any) -> dict[str, Any]:
    return {name: getattr(histories, name) for name in histories.__dataclass_fields__}


def test_sequences_are_those_of_memory(folder: Callable[..., PreparedData]) -> None:
    data, settings = folder("events"), settings_of("sasrec", length=50)
    batches = shards_of(data, settings)
    assert batches.reads_sequences
    assert shown(batches) == shown(in_memory(data, settings))


def test_an_epoch_goes_through_shards_in_a_new_order_with_steps_of_one_size(folder: Callable[..., PreparedData]) -> None:
    batches = shards_of(folder("unsold"), settings_of(batch_size="auto"))
    epochs = [list(batches.epoch(number)) for number in range(2)]
    for epoch in epochs:
        assert [batch.seed[-1] for batch in epoch] == list(range(len(epoch)))  # by which every so many steps hide ids
        assert sum(len(batch) for batch in epoch) == batches.n_instances
        assert max(len(batch) for batch in epoch) <= batches.groups_per_step + 8  # a piece stays whole
        assert len(epoch) - batches.steps_per_epoch in range(-2, 3)
    assert len({batch.seed for epoch in epochs for batch in epoch}) == len(epochs[0]) + len(epochs[1])
    again = list(batches.epoch(0))
    assert all(np.array_equal(left.targets, right.targets) for left, right in zip(epochs[0], again, strict=True))
    assert not np.array_equal(epochs[0][0].targets, epochs[1][0].targets)


def test_the_readers_of_a_cluster_share_the_targets(folder: Callable[..., PreparedData]) -> None:
    data, settings = folder("events"), settings_of()
    parts = [shown(shards_of(data, settings, rank=rank, n_ranks=2)) for rank in range(2)]
    assert min(len(part) for part in parts) > 0
    assert sorted([*parts[0], *parts[1]], key=repr) == shown(shards_of(data, settings))


def test_drawn_users_are_those_of_the_shard_read_last_with_all_that_they_did(folder: Callable[..., PreparedData]) -> None:
    data, settings = folder("unsold"), settings_of()
    batches = shards_of(data, settings)
    rng = np.random.default_rng(0)
    of_first = batches.draw_users(50, rng)
    owned_by_epoch = set()
    for number in range(4):
        _ = list(batches.epoch(number))
        drawn = batches.draw_users(50, rng)
        assert drawn.history is not None
        owned_by_epoch.add(tuple(sorted(drawn.history.items.tolist())))
        assert len(drawn) == len(drawn.attributes) < 60
    assert len(owned_by_epoch) > 1
    assert of_first.history is not None
    owned = [tuple(of_first.history.of_user(place).tolist()) for place in range(len(of_first))]
    complete = in_memory(data, settings).draw_users(1000, rng).history
    assert complete is not None
    assert set(owned) <= {tuple(complete.of_user(place).tolist()) for place in range(len(complete))}


def test_no_more_than_one_shard_is_held(folder: Callable[..., PreparedData], monkeypatch: pytest.MonkeyPatch) -> None:
    """Users, rows and events of a step's arrays are those of its shard."""
    data = folder("unsold")
    largest = max(shard.rows for shard in data.info.interactions)
    batches = shards_of(data, settings_of())
    for batch in batches.epoch(0):
        assert len(batch.had.items) <= 2 * largest
    sizes = [len(ShardUsers.of(data, shard).numbers) for shard in data.shards()]
    assert sum(sizes) == data.info.n_users


def test_ids_for_shuffled_ties_are_those_of_the_shard(tmp_path: Path, folder: Callable[..., PreparedData]) -> None:
    data = folder("events")
    ids = restore(data)[0].users.ids
    for shard in data.shards():
        users = ShardUsers.of(data, shard)
        assert users.data.users.ids.to_list() == ids[users.numbers.start : users.numbers.stop].to_list()
        np.testing.assert_array_equal(users.local + users.numbers.start, shard.users)
