from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from gmlfm import Dataset, Encoder, load_dataset, make_split
from gmlfm.data.attributes import AttributeTable
from gmlfm.data.prepared import PreparedData
from gmlfm.training.loop import Trainer, TrainingOptions
from gmlfm.training.sampling.batches import BatchOptions, RankingBatches, ShardBatches
from gmlfm.training.sampling.groups import Batch, IdRows, make_batch
from gmlfm.training.sampling.negatives import TrainingNegatives, training_sampler
from gmlfm.training.settings import Settings


def same(one: Batch, other: Batch) -> bool:
    names = ("user_ids", "user_x", "item_ids", "item_x", "labels")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names)


def test_an_epoch_is_every_positive_once_with_its_negatives(small_prepared: PreparedData) -> None:
    assert small_prepared.n_shards > 2
    options = BatchOptions(batch_size=200, n_negatives=3, cold_start_rate=0.0)
    batches = ShardBatches(small_prepared, options)
    seen = list(batches.epoch(0))
    assert (
        sum(batch.labels.size for batch in seen)
        == batches.n_instances
        == 4 * sum(one.train for one in small_prepared.info.interactions)
    )
    assert all(same(one, other) for one, other in zip(seen, batches.epoch(0), strict=True))
    assert not all(same(one, other) for one, other in zip(seen, batches.epoch(1), strict=False))


def test_readers_of_a_cluster_share_the_shards_without_overlap(small_prepared: PreparedData) -> None:
    options = BatchOptions(batch_size=200, n_negatives=1, cold_start_rate=0.0)
    parts = [ShardBatches(small_prepared, options, rank=rank, of=2).n_instances for rank in range(2)]
    assert sum(parts) == ShardBatches(small_prepared, options).n_instances


def test_shards_avoid_the_visible_positives_of_their_users(small_prepared: PreparedData) -> None:
    ids = {tuple(row): number for number, row in enumerate(small_prepared.items.ids.tolist())}
    visible = set()
    for shard in small_prepared.shards():
        kept = shard.parts == 0
        visible |= set(zip(small_prepared.users.ids[shard.users[kept], 0].tolist(), shard.items[kept].tolist(), strict=True))
    met = 0
    for batch in ShardBatches(small_prepared, BatchOptions(batch_size=400, n_negatives=5, cold_start_rate=0.0)).epoch(0):
        for user, rows in zip(batch.user_ids[:, 0].tolist(), batch.item_ids[:, 1:].tolist(), strict=True):
            for row in rows:
                # An id row of its own names the item; the shared ones (unknown, decoy) do not.
                number = ids.get(tuple(row))
                if number is not None:
                    met += 1
                    assert (user, number) not in visible
    assert met > 1000


def test_training_reads_shards_as_it_reads_memory(small_prepared: PreparedData, small_market: Path) -> None:
    """The same model learns from both: the loss falls alike. Steps for newcomers are left out, they have a loss of their own."""
    options, training = BatchOptions(batch_size=256, cold_start_rate=0.0), TrainingOptions(epochs=6, threads=1)
    data = load_dataset(small_market)
    split = make_split(data)
    encoder = Encoder.fit(data, split.train)
    users, items = data.user_numbers[split.train], data.item_numbers[split.train]
    known = IdRows.of(encoder, items, encoder.encode(data).item)
    negatives = TrainingNegatives(training_sampler(data, split), users, options.n_negatives)
    memory = RankingBatches(users, items, split.train, encoder.encode(data), known, negatives, options)
    losses = []
    for batches, n_rows in ((memory, encoder.n_rows), (ShardBatches(small_prepared, options), small_prepared.n_rows)):
        trainer = Trainer(Settings.make("gml-fm", "topn", {"k": 8}).build(), n_rows, training)
        found: list[float] = []

        class Watch:
            def on_step(self, done: int, total: int, loss: float) -> None:
                pass

            def on_epoch(self, report: object, trainer: object, found: list[float] = found) -> None:
                found.append(report.loss)  # type: ignore[attr-defined]

        trainer.fit(batches, None, "", Watch())
        losses.append(found)
    assert all(one[-1] < 0.9 * one[0] for one in losses)
    assert losses[0][-1] == pytest.approx(losses[1][-1], rel=0.1)


def test_a_value_that_no_positive_carries_is_not_learned_from_negatives() -> None:
    """Otherwise it would learn that it is never chosen, only because what carries it is new."""
    rows = pl.DataFrame({"u": [f"u{n % 6}" for n in range(24)], "i": [f"i{n % 4}" for n in range(24)]})
    items = pl.DataFrame({"i": [f"i{n}" for n in range(6)], "kind": ["a", "a", "b", "b", "only new", "b"]})
    schema = {"interactions": {"user": "u", "item": "i"}, "items": {"id": "i", "fields": {"kind": "category"}}}
    data = Dataset.from_tables(rows, None, items, schema=schema)
    encoder = Encoder.fit(data, np.arange(data.n_interactions))
    encoded = encoder.encode(data)
    known = IdRows.of(encoder, data.item_numbers, encoded.item)
    drawn = np.array([[0, 4, 5, 1]], np.int32)
    labels = np.array([[1.0, -1.0, -1.0, -1.0]], np.float32)
    user_side = AttributeTable(encoded.user.ids[:1], encoded.user.values[:1])
    batch = make_batch(user_side, encoded.item, drawn, labels, None, known)
    assert batch.item_x[0].tolist() == [[1, 1], [1, 0], [1, 1], [1, 1]]
    assert batch.item_ids[0, :, 0].tolist() == [
        encoded.item.ids[0, 0],
        known.negative_only_row,
        known.negative_only_row,
        encoded.item.ids[1, 0],
    ]
