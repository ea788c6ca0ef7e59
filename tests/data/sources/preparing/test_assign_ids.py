from __future__ import annotations

from pathlib import Path

import numpy as np

from gmlfm import Schema
from gmlfm.data.prepared import PreparedData
from gmlfm.data.sources.preparing import prepare


def test_all_rows_of_a_user_are_in_one_shard_and_readers_share_them(shop: Path, tmp_path: Path) -> None:
    prepared = prepare(Schema.from_toml(shop / "dataset.toml"), shop, tmp_path / "out", rows_per_bucket=100)
    assert prepared.n_shards > 3
    users = [set(shard.users.tolist()) for shard in prepared.shards()]
    assert sum(len(in_shard) for in_shard in users) == len(set.union(*users))
    rows = [sum(len(shard.users) for shard in prepared.shards(rank, 3)) for rank in range(3)]
    assert sum(rows) == prepared.info.n_interactions
    reopened = PreparedData(tmp_path / "out")
    assert isinstance(reopened.items.ids, np.memmap)
    assert np.array_equal(reopened.items.ids, prepared.items.ids)
