from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given

from gmlfm import Dataset
from gmlfm.data.describe import describe
from tests.data.arbitrary import datasets, plain


def test_counts_fields_tail_and_split() -> None:
    items = pl.DataFrame({"i": ["a", "b", "c", "z"], "colour": ["red", None, "red", "blue"], "price": [1.0, 2.0, None, 9.0]})
    table = pl.DataFrame({"u": [1, 1, 1, 2, 2, 2, 3], "i": ["a", "b", "c", "a", "b", "d", "a"], "t": range(7)})
    schema = {
        "interactions": {"user": "u", "item": "i", "time": "t"},
        "items": {"id": "i", "fields": {"colour": "category", "price": "number"}},
    }
    summary = describe(Dataset.from_tables(table, items=items, schema=schema))
    assert (summary.users, summary.items, summary.interactions, summary.catalogue) == (3, 4, 7, 5)
    assert summary.attributes == 3 + 4 + 2 + 1
    assert summary.sparsity == pytest.approx(1 - 7 / 12)
    colour = next(field for field in summary.fields if field.name == "colour")
    assert (colour.kind, colour.values, colour.missing, colour.example) == ("category", 2, 0.4, "red, blue")
    assert [(step.low, step.items) for step in summary.tail] == [(1, 2), (2, 1), (3, 1)]
    assert summary.split["test"] == {"rows": 2, "users": 2, "new_users": 0, "items": 2, "new_items": 2}
    assert summary.notes == ("1 users have fewer than 3 rows: all theirs are trained on, none tested.",)
    assert any("1 items (1 interactions) have no row" in message for message in summary.warnings)


@pytest.mark.parametrize(
    ("data", "warning"),
    [
        (plain([1, 1, 2], [1, 2, 1], [5, 5, 5]), "all times are equal"),
        (plain([1, 1, 1, 2], [1, 2, 3, 1], [4, 5, 5, 1]), "1 of 2 users tie on their last time"),
        (plain([1, 2, 3, 4], [1, 1, 1, 2]), "one item, 'i1', holds 75% of all interactions"),
        (plain([1, 1, 1], [1, 2, 3]), "3 of 3 items occur once: min_count = { item = 2 }"),
    ],
)
def test_suspicious_interactions_are_reported(data: Dataset, warning: str) -> None:
    assert any(warning in message for message in describe(data).warnings)


@pytest.mark.parametrize(
    ("values", "kind", "warning"),
    [
        ([f"{n}.5" for n in range(60)], "category", "item.x is a category of 60 numbers"),
        ([f"name {n}" for n in range(60)], "category", "item.x has as many values as rows (60)"),
        ([None] * 60, "category", "item.x has no value at all"),
        ([2.0] * 60, "number", "item.x is always 2"),
    ],
)
def test_suspicious_fields_are_reported(values: list[object], kind: str, warning: str) -> None:
    items = pl.DataFrame(
        {"i": [str(n) for n in range(61)], "x": [*values, values[0]] if "numbers" in warning else [*values, None]}
    )
    schema = {"interactions": {"user": "u", "item": "i"}, "items": {"id": "i", "fields": {"x": kind}}}
    data = Dataset.from_tables(pl.DataFrame({"u": ["a"], "i": ["0"]}), items=items, schema=schema)
    assert any(warning in message for message in describe(data).warnings)


@given(datasets())
def test_any_dataset_can_be_described(data: Dataset) -> None:
    summary = describe(data)
    assert summary.interactions == data.n_interactions
    assert sum(step.items for step in summary.tail) == summary.items


def test_repeated_pairs_do_not_make_the_data_denser() -> None:
    assert describe(plain([1, 1, 1, 2], [1, 1, 1, 2])).sparsity == pytest.approx(0.5)


def test_history_rows_are_counted_by_their_reason() -> None:
    table = {"u": [1, 1, 1, 2], "i": [1, 1, 2, 1], "e": ["buy", "buy", "see", "buy"], "t": [1, 2, 2, 3]}
    spec = {"user": "u", "item": "i", "time": "t", "event": "e", "targets": ["buy"]}
    summary = describe(Dataset.from_tables(table, schema={"interactions": spec}))
    assert (summary.history_rows, summary.interactions) == (2, 2)
    assert "history alone, never learned as targets: 1 merged repeats and 1 events that are no buy." in summary.notes
    assert summary.tied_rows == 0.5
