from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gmlfm.data import prepared as prepared_module
from gmlfm.data.attributes import AttributeTable
from gmlfm.data.prepared import PreparedData, padded, unpadded
from gmlfm.data.prepared_info import read_info
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


@pytest.mark.parametrize("name", ["users.ids.npy", "items.values.npy", "items.json"])
def test_a_flipped_cache_is_written_anew(small_prepared: PreparedData, copy: Path, name: str) -> None:
    cache = copy / "cache" / name
    content = bytearray(cache.read_bytes())
    content[-3] ^= 255
    cache.write_bytes(content)
    prepared = PreparedData(copy)
    for side in ("users", "items"):
        assert np.array_equal(getattr(prepared, side).ids, getattr(small_prepared, side).ids)
        assert np.array_equal(getattr(prepared, side).values, getattr(small_prepared, side).values)
    assert cache.read_bytes() == (small_prepared.folder / "cache" / name).read_bytes()
    assert not list((copy / "cache").glob(".*"))


def test_a_disk_that_is_full_leaves_no_half_cache(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(copy / "cache")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(prepared_module, "write_header", full)
    with pytest.raises(DataError, match=r"could not be written \(No space left on device\)"):
        _ = PreparedData(copy).users
    assert list((copy / "cache").iterdir()) == []


@pytest.mark.parametrize("place", [-1, -200, 50])
@pytest.mark.parametrize("name", ["values", "users/00000", "items/00001", "interactions/00002"])
def test_a_flipped_byte_of_a_table_is_seen(copy: Path, name: str, place: int) -> None:
    path = copy / f"{name}.parquet"
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    shutil.rmtree(copy / "cache")
    prepared = PreparedData(copy)
    with pytest.raises(DataError, match=rf"{name}\.parquet is missing or damaged \(its content does not fit its checksum\)"):
        _ = prepared.values, prepared.users, prepared.items, list(prepared.shards())


def without_checksums(folder: Path) -> PreparedData:
    """As another engine writes it."""
    info = replace(read_info(folder), checksums={})
    info.write(folder)
    return PreparedData(folder)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("interactions/00000", lambda frame: frame[:-1], r"does not fit prepared\.json \(it has .* rows instead of"),
        ("interactions/00000", lambda frame: frame.drop("part"), r"does not fit prepared\.json \(it has no column 'part'\)"),
        ("items/00000", lambda frame: frame[:-1], r"items/00000\.parquet does not fit prepared\.json \(.* rows\)"),
        (
            "items/00000",
            lambda frame: frame.with_columns(pl.lit([10**6], pl.List(pl.Int32)).alias("rows")),
            r"'rows' goes from 1000000 to 1000000",
        ),
        (
            "items/00000",
            lambda frame: frame.with_columns(pl.col("rows").list.concat("rows"), pl.col("x").list.concat("x")),
            r"items/00000\.parquet does not fit prepared\.json \(index",
        ),
    ],
)
def test_a_table_of_another_engine_that_does_not_fit_is_refused(
    copy: Path, name: str, change: Callable[[pl.DataFrame], pl.DataFrame], message: str
) -> None:
    path = copy / f"{name}.parquet"
    change(pl.read_parquet(path)).write_parquet(path)
    shutil.rmtree(copy / "cache")
    prepared = without_checksums(copy)
    with pytest.raises(DataError, match=message):
        _ = prepared.users, prepared.items, list(prepared.shards())


def test_a_folder_of_any_name_is_read(small_prepared: PreparedData, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(small_prepared.folder, tmp_path / "p[1] *"))
    assert len(list(PreparedData(folder).shards())) == small_prepared.n_shards


def test_a_damaged_folder_is_refused(copy: Path, tmp_path: Path) -> None:
    prepared = PreparedData(copy)
    (copy / "interactions" / "00000.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match="missing or damaged"):
        prepared.shard(0)
    path = copy / "prepared.json"
    path.write_text(path.read_text().replace('"format": 4', '"format": 9'))
    with pytest.raises(DataError, match="format 9, this version reads 4"):
        PreparedData(copy)
    path.write_text("{")
    with pytest.raises(DataError, match="cannot be understood"):
        PreparedData(copy)
    with pytest.raises(DataError, match="is no prepared folder"):
        PreparedData(tmp_path)
