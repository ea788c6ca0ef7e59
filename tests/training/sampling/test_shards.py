"""Batches from a prepared folder, shard after shard."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gmlfm import Schema, load_dataset
from gmlfm.data.prepared import PreparedData
from gmlfm.data.restoring import restore
from gmlfm.data.sources.preparing import prepare
from gmlfm.fitting.memory import MemoryPlan
from gmlfm.models.gradient import GradientModel
from gmlfm.training.row_trainer import RowTrainer
from gmlfm.training.sampling.batches import BatchOptions, RankingBatches
from gmlfm.training.sampling.cold_start import Grid
from gmlfm.training.sampling.groups import Batch
from gmlfm.training.sampling.shards import ShardBatches
from gmlfm.training.settings import Settings
from gmlfm.training.trainer import EpochReport, NullObserver, Resumable
from tests.fitting.catalogues import write_catalogue


def same(left: Batch, right: Batch) -> bool:
    names = ("user_ids", "user_x", "item_ids", "item_x", "labels")
    return all(np.array_equal(getattr(left, name), getattr(right, name)) for name in names)


def test_an_epoch_is_every_positive_once_with_its_negatives(small_prepared: PreparedData) -> None:
    assert small_prepared.n_shards > 2
    options = BatchOptions(batch_size=200, n_negatives=3, cold_start_rate=0.0)
    batches = ShardBatches(small_prepared, options)
    epoch = list(batches.epoch(0))
    assert (
        sum(batch.labels.size for batch in epoch)
        == batches.n_instances
        == 4 * sum(shard.train for shard in small_prepared.info.interactions)
    )
    assert all(same(batch, repeated) for batch, repeated in zip(epoch, batches.epoch(0), strict=True))
    assert not all(same(batch, later) for batch, later in zip(epoch, batches.epoch(1), strict=False))


def test_held_out_parts_are_read_only_where_they_are_named(small_prepared: PreparedData) -> None:
    options = BatchOptions(batch_size=200, n_negatives=1)
    counts = small_prepared.info.interactions
    sizes = [ShardBatches(small_prepared, options, parts).n_instances for parts in ((0,), (0, 1), (0, 1, 2))]
    train, validation, test = (sum(getattr(shard, name) for shard in counts) for name in ("train", "validation", "test"))
    assert sizes == [2 * train, 2 * (train + validation), 2 * (train + validation + test)]


def test_readers_of_a_cluster_share_the_shards_without_overlap(small_prepared: PreparedData) -> None:
    options = BatchOptions(batch_size=200, n_negatives=1, cold_start_rate=0.0)
    sizes = [ShardBatches(small_prepared, options, rank=rank, n_ranks=2).n_instances for rank in range(2)]
    assert sum(sizes) == ShardBatches(small_prepared, options).n_instances
    assert min(sizes) > 0


def test_shards_avoid_the_visible_positives_of_their_users(small_prepared: PreparedData) -> None:
    numbers = {tuple(row): number for number, row in enumerate(small_prepared.items.ids.tolist())}
    visible = set()
    for shard in small_prepared.shards():
        is_train = shard.parts == 0
        user_rows = small_prepared.users.ids[shard.users[is_train], 0]
        visible |= set(zip(user_rows.tolist(), shard.items[is_train].tolist(), strict=True))
    n_checked = 0
    for batch in ShardBatches(small_prepared, BatchOptions(batch_size=400, n_negatives=5, cold_start_rate=0.0)).epoch(0):
        for user, rows in zip(batch.user_ids[:, 0].tolist(), batch.item_ids[:, 1:].tolist(), strict=True):
            for row in rows:
                # An id row of its own names the item; the shared ones (unknown, negative-only) do not.
                number = numbers.get(tuple(row))
                if number is not None:
                    n_checked += 1
                    assert (user, number) not in visible
    assert n_checked > 1000


def drawn_negatives(data: PreparedData) -> Iterator[tuple[int, int, set[int]]]:
    """shard, row and negatives of each training row, over some epochs."""
    batches = ShardBatches(data, BatchOptions(n_negatives=4, cold_start_rate=0.0))
    for number, shard in enumerate(data.shards()):
        of_shard = batches._batches_of(shard)
        assert isinstance(of_shard, RankingBatches)
        drawn = np.concatenate([of_shard.negatives.of_epoch(epoch) for epoch in range(20)], axis=1)
        for row, items in zip(of_shard.rows.tolist(), drawn.tolist(), strict=True):
            yield number, row, set(items)


def test_negatives_are_items_of_any_row_of_any_part_never_unsold_ones(tmp_path: Path) -> None:
    """As in memory: of 3,150 listed items 150 are ever chosen, also by held-out rows."""
    folder = write_catalogue(tmp_path, "unsold")
    schema = Schema.from_toml(folder / "dataset.toml")
    prepared = prepare(schema, folder, folder / "p", rows_per_bucket=160)
    expected = set(restore(prepared)[0].seen_items.tolist())
    drawn = set().union(*(items for *_, items in drawn_negatives(prepared)))
    assert len(expected) < 200 < prepared.info.n_items
    assert drawn == expected


def test_with_listing_times_negatives_are_what_could_be_had_at_the_row(tmp_path: Path) -> None:
    folder = write_catalogue(tmp_path, "sold-once-listed")
    schema = Schema.from_toml(folder / "dataset.toml")
    prepared = prepare(schema, folder, folder / "p", rows_per_bucket=160)
    data, split, _ = restore(prepared)
    assert split.name == "global-time"
    assert data.availability is not None
    sizes = [len(shard.users) for shard in prepared.shards()]
    starts = np.cumsum([0, *sizes])
    seen, n_unsold = set(data.seen_items.tolist()), 0
    for number, row, items in drawn_negatives(prepared):
        negatives = np.array(sorted(items))
        time = data.availability.row_times[starts[number] + row]
        assert data.availability.is_available(negatives, np.full(len(negatives), time)).all()
        n_unsold += len(items - seen)
    assert n_unsold > 0


def test_newcomers_are_imitated_with_the_users_of_one_shard(small_prepared: PreparedData) -> None:
    batches = ShardBatches(small_prepared, BatchOptions(batch_size=200))
    user_rows = [set(small_prepared.users.ids[shard.users[shard.parts == 0], 0]) for shard in small_prepared.shards()]
    shards = set()
    for epoch in range(6):
        sampler = batches.cold_start_sampler(epoch)
        assert sampler is not None
        drawn = set(sampler.draw_grid(1, Grid(n_users=30, n_groups=1)).user_ids[:, 0])
        (number,) = (number for number, rows in enumerate(user_rows) if drawn <= rows)
        shards.add(number)
    assert len(shards) > 1  # another one each epoch
    assert ShardBatches(small_prepared, BatchOptions(cold_start_rate=0.0)).cold_start_sampler(0) is None


def test_training_reads_shards_as_it_reads_memory(small_prepared: PreparedData, small_market: Path) -> None:
    """The same model learns from both: the loss falls alike. Steps for newcomers are left out, they have a loss of their own."""
    options = {"k": 8, "epochs": 6, "threads": 1, "batch_size": 256, "cold_start_rate": 0.0, "history": "none"}
    settings = Settings.make("gml-fm", "topn", options)
    inputs = MemoryPlan(load_dataset(small_market), settings, "leave-one-out", {}, "cpu").selection_inputs()
    curves = []
    for batches, n_rows in (
        (inputs.batches(), inputs.layout.n_rows),
        (ShardBatches(small_prepared, settings.batches), small_prepared.n_rows),
    ):
        model, losses = settings.build(), Losses()
        assert isinstance(model, GradientModel)
        RowTrainer(model, n_rows, settings.training, batches).fit(None, "", losses)
        curves.append(losses.values)
    assert all(values[-1] < 0.9 * values[0] for values in curves)
    assert curves[0][-1] == pytest.approx(curves[1][-1], rel=0.1)


class Losses(NullObserver):
    """The mean loss of each epoch."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def on_epoch(self, report: EpochReport, trainer: Resumable) -> None:
        self.values.append(report.loss)
