from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from gmlfm import Schema
from gmlfm.data import counting
from gmlfm.data.counting import FieldValues, ItemTally, RowCounts
from gmlfm.data.schema import Field


def test_numbers_are_thinned_evenly_beyond_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "_MOST_NUMBERS", 100)
    values = FieldValues(Field("price", "number"))
    for start in range(0, 1000, 50):
        values.add(pl.Series(np.arange(start, start + 50, dtype=float)))
    numbers = np.concatenate(values._numbers)
    assert 25 < len(numbers) <= 100
    assert np.diff(numbers).max() <= 64


def test_ranks_follow_the_counts_and_leave_out_the_rare() -> None:
    assert counting._ranks(np.array([2, 0, 5, 2], np.int32), 1).tolist() == [1, -1, 0, 2]


ROWS = {
    "user": [0, 0, 1, 1],
    "item": [2, 2, 0, 1],
    "part": pl.Series([0, 0, 0, 1], dtype=pl.Int8),
    "positive": [True, True, False, True],
    "context device": ["web", "web", "app", "phone"],
}


def test_rows_of_the_named_parts_are_counted_ids_by_their_positives() -> None:
    content = {"interactions": {"user": "u", "item": "i", "context": {"device": "category"}}}
    schema = Schema.from_dict(content)
    counts = RowCounts(2, 3, schema)
    counts.add(pl.DataFrame(ROWS), (0,))
    vocabulary = counts.vocabulary([])
    assert [(code.name, code.n_values) for code in vocabulary.codes] == [("user", 1), ("device", 1), ("item", 1)]
    item = vocabulary.codes[2]
    assert vocabulary.id_rows["item"].tolist() == [item.unknown_row, item.unknown_row, item.offset + 2]
    assert vocabulary.texts[1].to_list() == ["web"]  # app is of a row that no task learns from
    labelled = RowCounts(2, 3, schema)
    labelled.add(pl.DataFrame({**ROWS, "label": [1.0, None, 2.0, 3.0]}), (0, 1))
    assert sorted(labelled.vocabulary([]).texts[1].to_list()) == ["app", "phone", "web"]


def test_an_item_is_repeated_within_a_block_or_over_blocks() -> None:
    tally = ItemTally(5)
    for items in ([0, 1, 1], [0, 2], []):
        tally.add(np.array(items, np.int32))
    assert tally.is_seen.tolist() == [True, True, True, False, False]
    assert tally.is_repeated.tolist() == [True, True, False, False, False]
