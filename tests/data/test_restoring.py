from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from gmlfm import Dataset, load_dataset
from gmlfm.data.prepared import PreparedData
from gmlfm.data.restoring import restore


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
