"""What shards say of items is what the data in memory say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from gmlfm import Schema, load_dataset, make_split
from gmlfm.data.prepared import PreparedData
from gmlfm.data.restoring import restore
from gmlfm.data.sources.preparing import prepare
from gmlfm.errors import DataError
from gmlfm.training.sampling.availability import row_availability

TOML = """[interactions]
path = "rows.parquet"
user = "u"
item = "i"
time = "t"
[items]
path = "items.parquet"
id = "i"
listed = "from"
"""


def write(folder: Path, listed_as: str = "integer", shift: int = 0, missing: str = "") -> Path:
    """200 things of which 170 are sold, ten of them twice; some without a listing time, some listed late."""
    rng = np.random.default_rng(0)
    listed = rng.integers(0, 500, 200) + shift
    sales = np.concatenate([np.arange(170), np.arange(10)])
    times = listed[sales] - shift + rng.integers(-20, 300, 180)
    columns: dict[str, Any] = {"u": rng.integers(0, 30, 180), "i": [f"i{item}" for item in sales], "t": times}
    rows = pl.DataFrame(columns).with_columns(pl.col("t").cast(pl.Int64))
    if missing == "time":
        rows = rows.with_columns(pl.when(pl.col("i") == "i17").then(None).otherwise(pl.col("t")).alias("t"))
    rows.write_parquet(folder / "rows.parquet")
    start = pl.Series("from", listed).cast(pl.Float64 if listed_as == "float" else pl.Int64)
    items = pl.DataFrame({"i": [f"i{item}" for item in range(200)], "from": start + (0.5 if listed_as == "float" else 0)})
    items = items.with_columns(pl.when(pl.col("i").is_in(["i3", "i180"])).then(None).otherwise(pl.col("from")).alias("from"))
    items.filter(pl.col("i") != "i5").write_parquet(folder / "items.parquet")
    (folder / "dataset.toml").write_text(TOML)
    return folder


def prepared_from(folder: Path) -> PreparedData:
    return prepare(Schema.from_toml(folder / "dataset.toml"), folder, folder / "p", rows_per_bucket=40)


@pytest.mark.parametrize("listed_as", ["integer", "float"])
def test_items_can_be_had_at_the_same_rows_as_in_memory(tmp_path: Path, listed_as: str) -> None:
    folder = write(tmp_path, listed_as)
    prepared, memory = prepared_from(folder), load_dataset(folder)
    assert prepared.n_shards > 2
    assert prepared.bounds is not None
    data, split, _ = restore(prepared)
    assert split.name == make_split(memory).name == "global-time"
    assert data.availability is not None
    assert memory.availability is not None
    times = [prepared.bounds.keys(shard.columns["time"]) for shard in prepared.shards()]
    available = (prepared.bounds.start <= np.concatenate(times)[:, None]) & (
        np.concatenate(times)[:, None] <= prepared.bounds.end
    )
    items = np.arange(len(data.items))
    restored = data.availability.is_available(items, data.availability.row_times[:, None])
    np.testing.assert_array_equal(available, restored)
    in_memory = memory.availability.is_available(np.arange(len(memory.items)), memory.availability.row_times[:, None])

    def by_ids(source: Any, rows: np.ndarray) -> set[tuple[str, str, str]]:
        users, sold = source.users.ids.gather(source.user_numbers), source.items.ids.gather(source.item_numbers)
        return {
            (users[int(row)], sold[int(row)], source.items.ids[int(item)]) for row, item in zip(*np.nonzero(rows), strict=True)
        }

    assert by_ids(data, restored) == by_ids(memory, in_memory)
    assert 0.1 < in_memory.mean() < 0.9


def test_occurrences_are_over_all_parts_and_trained_items_are_set_apart(tmp_path: Path) -> None:
    prepared = prepared_from(write(tmp_path))
    data, split, _ = restore(prepared)
    np.testing.assert_array_equal(np.flatnonzero(prepared.occurrences.is_seen), data.seen_items)
    np.testing.assert_array_equal(np.flatnonzero(prepared.occurrences.is_trained), np.unique(data.item_numbers[split.train]))
    np.testing.assert_array_equal(prepared.single_unit_items, data.single_unit_items)
    assert 0 < int((~data.single_unit_items).sum()) <= 10


def test_without_all_times_there_are_no_bounds(tmp_path: Path) -> None:
    folder = write(tmp_path, missing="time")
    prepared = prepared_from(folder)
    assert prepared.bounds is restore(prepared)[0].availability is None


def test_listing_times_on_another_scale_are_refused_before_training(tmp_path: Path) -> None:
    folder = write(tmp_path, shift=10**6)
    with pytest.raises(DataError) as in_memory:
        _ = load_dataset(folder).availability
    with pytest.raises(DataError, match="items are listed after their sale, such as one listed at") as in_shards:
        _ = prepared_from(folder).bounds
    assert str(in_shards.value).split("such as")[0] == str(in_memory.value).split("such as")[0]


def test_rows_without_a_time_which_turn_availability_off_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = write(tmp_path, missing="time")
    prepared, memory = prepared_from(folder), load_dataset(folder)
    for asked in (lambda: prepared.bounds, lambda: memory.availability, lambda: row_availability(memory, "leave-one-out")):
        caplog.clear()
        assert asked() is None
        assert "1 of the interactions have no time, so it is not known what could be had when" in caplog.text
    caplog.clear()
    untimed = replace(memory, items=replace(memory.items, listed=None))
    assert row_availability(untimed, "leave-one-out") is None
    assert caplog.text == ""  # nothing is known of listings or sales that could be used
