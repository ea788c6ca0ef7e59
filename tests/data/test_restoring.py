from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from gmlfm import Dataset, Schema, load_dataset
from gmlfm.data.prepared import PreparedData
from gmlfm.data.restoring import restore
from gmlfm.data.sources.preparing import prepare


def pairs(data: Dataset) -> list[tuple[str, str]]:
    users, items = data.users.ids.gather(data.user_numbers), data.items.ids.gather(data.item_numbers)
    return sorted(zip(users, items, strict=True))


def test_restored_data_are_those_read_in_memory(small_prepared: PreparedData, small_market: Path) -> None:
    data, split, encoder = restore(small_prepared)
    memory = load_dataset(small_market)
    assert pairs(data) == pairs(memory)
    assert len(split.train) + len(split.validation) + len(split.test) == data.n_interactions
    for restored, read in ((data.users, memory.users), (data.items, memory.items)):
        tables = [pl.DataFrame([side.ids.alias("id"), *side.fields.iter_columns()]).sort("id") for side in (restored, read)]
        assert tables[0].equals(tables[1])
    encoded = encoder.encode(data)
    for table, prepared_table in ((encoded.user, small_prepared.users), (encoded.item, small_prepared.items)):
        np.testing.assert_array_equal(table.ids, prepared_table.ids)
        np.testing.assert_array_equal(table.values, prepared_table.values)


def test_the_split_has_the_rows_that_the_task_reads(tmp_path: Path) -> None:
    """Rows that are no positives are rated on, but never recommended or tested for."""
    rng = np.random.default_rng(0)
    columns = {"u": rng.integers(0, 20, 300), "i": rng.integers(0, 40, 300), "stars": rng.integers(1, 6, 300)}
    pl.DataFrame(columns).with_columns(pl.when(pl.col("i") > 3).then("stars").alias("stars")).write_csv(tmp_path / "r.csv")
    toml = (
        '[interactions]\npath = "r.csv"\nuser = "u"\nitem = "i"\nlabel = "stars"\npositive = "stars >= 3"\nrepeats = "keep"\n'
    )
    (tmp_path / "dataset.toml").write_text(toml)
    prepared = prepare(Schema.from_toml(tmp_path / "dataset.toml"), tmp_path, tmp_path / "p", rows_per_bucket=90)
    for task in ("topn", "rating"):
        data, split, _ = restore(prepared, task)  # type: ignore[arg-type]
        rows = np.sort(np.concatenate([split.train, split.validation, split.test]))
        np.testing.assert_array_equal(rows, data.rows_for(task))  # type: ignore[arg-type]
        assert len(split.test) == pytest.approx(0.1 * len(rows), abs=8)


def test_what_is_declared_of_items_and_rows_comes_back(small_prepared: PreparedData, small_market: Path) -> None:
    data, memory = restore(small_prepared)[0], load_dataset(small_market)
    assert data.sells_once is memory.sells_once is True
    assert (data.items.listed is None) == (memory.items.listed is None)
    assert data.schema.min_count == memory.schema.min_count
    assert data.schema.interactions.repeats == memory.schema.interactions.repeats
