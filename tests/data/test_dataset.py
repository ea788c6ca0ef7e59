from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given

from gmlfm import Dataset
from tests.data.arbitrary import INTERACTIONS, ITEMS, build, datasets, plain, random_plain


def test_the_hash_names_the_content() -> None:
    assert build().content_hash == build().content_hash
    other = {**INTERACTIONS, "t": [5, 6, 7, 9]}
    assert build(interactions=pl.DataFrame(other)).content_hash != build().content_hash
    assert build(items=pl.DataFrame({**ITEMS, "tags": ["xy", "", "y"]})).content_hash != build().content_hash
    lists = {"interactions": {"user": "u", "item": "i"}, "items": {"id": "i", "fields": {"tags": {"kind": "set"}}}}
    nested = [pl.DataFrame({"i": ["b", "a"], "tags": tags}) for tags in ([["x"], ["y", "z"]], [["x", "y"], ["z"]])]
    assert len({build(users=None, items=items, schema=lists).content_hash for items in nested}) == 2


def test_the_hash_knows_of_ties_and_history_but_only_where_there_are_any() -> None:
    # Of the version before there were history rows: data without them keep their hash.
    assert plain([1, 1, 2], [1, 2, 1], [3, 4, 5]).content_hash == "dd518fab48f86877"
    assert random_plain(5, 5, 40, repeats="keep").content_hash == "ef7d528fd669f9bc"
    data = random_plain(5, 5, 40, repeats="merge")
    assert data.history_rows.height > 0
    assert replace(data, history_rows=data.history_rows[:0]).content_hash == "5ea499ad8b9655fa"
    others = [
        data.history_rows[1:],
        data.history_rows[:0],
        data.history_rows.with_columns(~pl.col("is_had")),
        data.history_rows.with_columns(pl.col("before") + 1),
    ]
    hashes = {data.content_hash, *(replace(data, history_rows=rows).content_hash for rows in others)}
    for ties in ("file", "shuffle"):
        interactions = replace(data.schema.interactions, ties=ties)
        hashes.add(replace(data, schema=replace(data.schema, interactions=interactions)).content_hash)
    assert len(hashes) == 7


def test_order_is_by_time_then_by_position_and_missing_times_come_first() -> None:
    data = plain([1, 1, 1, 1], [1, 2, 3, 4], [5, None, 5, 2])  # type: ignore[list-item]
    assert data.order_in_time(np.arange(4)).tolist() == [1, 3, 0, 2]
    assert any("1 interactions have no time" in warning for warning in data.warnings)


def test_a_schema_is_inferred_and_logged(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
    data = Dataset.from_tables(pd.DataFrame({"customer_id": [1, 1, 2], "sku": ["a", "b", "a"], "rating": [3, 4, 5]}))
    assert (data.schema.interactions.user, data.schema.interactions.item) == ("customer_id", "sku")
    assert data.schema.interactions.label == "rating"
    assert [(record.name, record.levelno) for record in caplog.records] == [("gmlfm", logging.WARNING)]
    assert caplog.messages[0].startswith("# gmlfm inferred this schema; pass schema= to change it\n")
    assert 'user = "customer_id"' in caplog.messages[0]
    assert capfd.readouterr() == ("", "")


def test_a_dataset_cannot_be_changed() -> None:
    data = build()
    with pytest.raises(AttributeError):
        data.users = data.items  # type: ignore[misc]
    with pytest.raises(ValueError, match="read-only"):
        data.user_numbers[0] = 1


@given(datasets())
def test_any_tables_are_taken_or_refused_in_a_sentence(data: Dataset) -> None:
    assert data.user_numbers.max() < len(data.users)
    assert data.items.ids.n_unique() == len(data.items)
    assert data.users.fields.width == 0 or data.users.fields.height == len(data.users)
    assert len(data.content_hash) == 16


def test_columns_of_a_part_are_its_declared_fields() -> None:
    data = build()
    assert [data.columns_of(part).columns for part in ("user", "context", "item")] == [["city", "age"], ["on"], ["tags"]]
    assert data.columns_of("context").height == data.n_interactions
