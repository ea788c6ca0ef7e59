from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gmlfm.data.attributes import AttributeTable
from gmlfm.data.prepared import PreparedData, padded, unpadded
from gmlfm.errors import DataError


@pytest.fixture
def copy(small_prepared: PreparedData, tmp_path: Path) -> Path:
    return Path(shutil.copytree(small_prepared.folder, tmp_path / "copy"))


@given(st.lists(st.lists(st.integers(1, 9), max_size=4), min_size=1, max_size=6))
def test_padding_and_lists_are_two_forms_of_the_same(rows: list[list[int]]) -> None:
    ids, values = np.zeros((len(rows), 4), np.int32), np.zeros((len(rows), 4), np.float32)
    for entity, attributes in enumerate(rows):
        ids[entity, : len(attributes)], values[entity, : len(attributes)] = attributes, np.divide(attributes, 2)
    lists, x = unpadded(AttributeTable(ids, values))
    assert lists.to_list() == rows
    table = padded(lists, x, 4)
    assert np.array_equal(table.ids, ids)
    assert np.array_equal(table.values, values)


def test_readers_share_the_shards(small_prepared: PreparedData) -> None:
    assert small_prepared.n_shards > 2
    sizes = [len(shard.users) for shard in small_prepared.shards()]
    shared = [[len(shard.users) for shard in small_prepared.shards(rank, of=2)] for rank in (0, 1)]
    assert shared == [sizes[0::2], sizes[1::2]]
    assert sum(sizes) == small_prepared.info.n_interactions


def test_a_cut_cache_is_written_anew(small_prepared: PreparedData, copy: Path) -> None:
    assert len(PreparedData(copy).items) == small_prepared.info.n_items
    cache = copy / "cache" / "items.ids.npy"
    cache.write_bytes(cache.read_bytes()[:200])
    assert np.array_equal(PreparedData(copy).items.ids, small_prepared.items.ids)


def test_a_damaged_folder_is_refused(copy: Path, tmp_path: Path) -> None:
    prepared = PreparedData(copy)
    (copy / "interactions" / "00000.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match="missing or damaged"):
        prepared.shard(0)
    path = copy / "prepared.json"
    path.write_text(path.read_text().replace('"format": 3', '"format": 9'))
    with pytest.raises(DataError, match="format 9, this version reads 3"):
        PreparedData(copy)
    path.write_text("{")
    with pytest.raises(DataError, match="cannot be understood"):
        PreparedData(copy)
    with pytest.raises(DataError, match="is no prepared folder"):
        PreparedData(tmp_path)
