from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from polars.testing import assert_frame_equal

from gmlfm import Dataset
from gmlfm.errors import DataError, GmlfmError, SchemaError
from tests.data.arbitrary import datasets, plain

SCHEMA: dict[str, Any] = {
    "interactions": {"user": "u", "item": "i", "time": "t", "label": "stars", "weight": "n", "context": {"on": "category"}},
    "users": {"id": "u", "fields": {"city": "category", "age": "number"}},
    "items": {"id": "i", "fields": {"tags": {"kind": "set", "separator": "|"}}, "title": "name"},
}
INTERACTIONS = {
    "u": [1, 2, 1, 3],
    "i": ["a", "b", "a", "c"],
    "t": [5, 6, 7, 8],
    "stars": [1.0, None, 3.0, 4.0],
    "n": [1, 2, 3, 4],
    "on": ["web", "app", "web", "app"],
}
USERS = {"u": [1, 2], "city": ["Ōsaka", None], "age": [30.0, float("nan")]}
ITEMS = {"i": ["b", "a", "z"], "tags": ["x|y", "", "y| x |y"], "name": ["B", "A", "Z"]}


def build(**changes: Any) -> Dataset:
    tables = {
        "interactions": pl.DataFrame(INTERACTIONS),
        "users": pl.DataFrame(USERS),
        "items": pl.DataFrame(ITEMS),
        "schema": SCHEMA,
    }
    return Dataset.from_tables(**{**tables, **changes})


def test_tables_become_numbered_sides_and_interactions() -> None:
    data = build()
    assert data.users.ids.to_list() == ["1", "2", "3"]
    assert data.users.id_type == "integer"
    assert data.items.ids.to_list() == ["b", "a", "z", "c"]
    assert (data.users.n_listed, data.items.n_listed) == (2, 3)
    assert data.items.fields["tags"].to_list() == [["x", "y"], [], ["y", "x"], None]
    assert data.items.titles is not None
    assert data.items.titles.to_list() == ["B", "A", "Z", None]
    assert data.users.fields["age"].to_list() == [30.0, None, None]
    assert data.seen_items.tolist() == [0, 1, 3]


def test_repeated_pairs_are_merged_into_the_latest_and_weights_add_up() -> None:
    data = build()
    assert data.interactions.rows() == [(1, 0, 6, None, 2.0, True), (0, 1, 7, 3.0, 4.0, True), (2, 3, 8, 4.0, 4.0, True)]
    assert any("1 repeated rows were merged" in line for line in data.warnings)
    kept = build(schema={**SCHEMA, "interactions": {**SCHEMA["interactions"], "repeats": "keep"}})
    assert kept.n_interactions == 4


def test_another_context_is_another_occasion() -> None:
    data = build(interactions=pl.DataFrame({**INTERACTIONS, "on": ["web", "app", "app", "app"]}))
    assert data.n_interactions == 4
    assert data.context["on"].to_list() == ["web", "app", "app", "app"]


@pytest.mark.parametrize("make", [pd.DataFrame, pa.table, pl.DataFrame, pl.LazyFrame, dict], ids=lambda make: str(make))
def test_every_maker_of_tables_gives_the_same_dataset(make: Any) -> None:
    data = build(interactions=make(INTERACTIONS), users=make(USERS), items=make(ITEMS))
    assert data.content_hash == build().content_hash
    assert_frame_equal(data.interactions, build().interactions)


def test_pandas_floats_of_whole_numbers_are_still_integer_ids() -> None:
    table = pd.DataFrame({"u": [1, 2, None], "i": ["a", "b", "c"]})
    schema = {"interactions": {"user": "u", "item": "i", "read": {"tolerate": 1}}}
    data = Dataset.from_tables(table, schema=schema)
    assert (data.users.ids.to_list(), data.users.id_type) == (["1", "2"], "integer")
    assert "1 row(s) of the interactions, this the first, have no user or no item" in data.warnings[0]


def test_the_hash_names_the_content() -> None:
    assert build().content_hash == build().content_hash
    other = {**INTERACTIONS, "t": [5, 6, 7, 9]}
    assert build(interactions=pl.DataFrame(other)).content_hash != build().content_hash
    assert build(items=pl.DataFrame({**ITEMS, "tags": ["xy", "", "y"]})).content_hash != build().content_hash
    lists = {"interactions": {"user": "u", "item": "i"}, "items": {"id": "i", "fields": {"tags": {"kind": "set"}}}}
    nested = [pl.DataFrame({"i": ["b", "a"], "tags": tags}) for tags in ([["x"], ["y", "z"]], [["x", "y"], ["z"]])]
    assert len({build(users=None, items=one, schema=lists).content_hash for one in nested}) == 2


def test_unlisted_items_are_kept_and_counted_but_refused_when_strict() -> None:
    assert any("1 items (1 interactions) have no row in the items table, such as 'c'" in line for line in build().warnings)
    with pytest.raises(DataError, match=r"the interactions table row 4: 1 users .* add them, or drop strict"):
        build(strict=True)


def test_positive_is_a_condition_and_missing_does_not_fulfil_it() -> None:
    data = build(schema={**SCHEMA, "interactions": {**SCHEMA["interactions"], "positive": "stars >= 3 and on != 'tv'"}})
    assert data.interactions["positive"].to_list() == [False, True, True]
    assert data.positive_rows.tolist() == [1, 2]
    assert data.rows_for("rating").tolist() == [1, 2]
    assert data.rows_for("topn").tolist() == [1, 2]


def test_order_is_by_time_then_by_position_and_missing_times_come_first() -> None:
    data = plain([1, 1, 1, 1], [1, 2, 3, 4], [5, None, 5, 2])  # type: ignore[list-item]
    assert data.order_in_time(np.arange(4)).tolist() == [1, 3, 0, 2]
    assert any("1 interactions have no time" in line for line in data.warnings)


def test_a_schema_is_inferred_and_shown(capsys: pytest.CaptureFixture[str]) -> None:
    data = Dataset.from_tables(pd.DataFrame({"customer_id": [1, 1, 2], "sku": ["a", "b", "a"], "rating": [3, 4, 5]}))
    assert (data.schema.interactions.user, data.schema.interactions.item) == ("customer_id", "sku")
    assert data.schema.interactions.label == "rating"
    assert 'user = "customer_id"' in capsys.readouterr().err


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


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"interactions": {**INTERACTIONS, "u": [None] * 4}}, DataError, "4 row(s) of the interactions"),
        ({"interactions": {"u": [1], "itm": ["a"]}}, SchemaError, "has no column 'i'"),
        ({"interactions": {**INTERACTIONS, "stars": ["1", "2", "good", "4"]}}, DataError,
         "the interactions table row 3: column 'stars' holds 'good' where a number was expected"),
        ({"interactions": {**INTERACTIONS, "stars": [1.0, float("inf"), 1.0, 1.0]}}, DataError, "row 2: column 'stars' is infinite"),
        ({"interactions": {**INTERACTIONS, "n": [1, 0, 1, 1]}}, DataError, "row 2: column 'n' holds the weight 0.0"),
        ({"interactions": {**INTERACTIONS, "t": ["2020-01-01", "2020-01-02", "soon", "2020-01-04"]}}, DataError,
         "row 3: column 't' holds 'soon' where a date or a number was expected"),
        ({"users": {**USERS, "u": [1, 1]}}, DataError, "the users table row 2: column 'u' holds '1' again (first at the users table row 1"),
        ({"users": {**USERS, "u": [1, None]}}, DataError, "the users table row 2: column 'u' is missing"),
        ({"users": {"u": [], "city": [], "age": []}}, DataError, "the users table is empty"),
        ({"users": {**USERS, "city": [["a", "b"], None]}}, SchemaError, 'declare it as { kind = "set" }'),
        ({"items": {**ITEMS, "tags": ["x", "y", "z"]},
          "schema": {**SCHEMA, "items": {"id": "i", "fields": {"tags": {"kind": "set"}}}}}, SchemaError, "say what stands between"),
        ({"schema": {**SCHEMA, "interactions": {**SCHEMA["interactions"], "positive": "stars > 9"}}}, DataError, "no row fulfils"),
        ({"users": None}, SchemaError, "the schema has [users], but no table of users was given"),
        ({"schema": {"interactions": SCHEMA["interactions"]}}, SchemaError, "a table of users was given, but the schema has no [users]"),
        ({"interactions": 3}, DataError, "the interactions table is a int; expected a polars, pandas or Arrow table"),
    ],
)  # fmt: skip
def test_bad_tables_are_refused_with_their_place(changes: dict[str, Any], error: type[GmlfmError], message: str) -> None:
    with pytest.raises(error) as caught:
        build(**changes)
    assert message in str(caught.value)


def ids_of(values: Any) -> tuple[list[str], str]:
    table = pl.DataFrame({"u": values, "i": ["x"] * len(values)})
    data = Dataset.from_tables(table, schema={"interactions": {"user": "u", "item": "i", "repeats": "keep"}})
    return data.users.ids.to_list(), data.users.id_type


def test_decimal_and_float_ids_stay_apart_and_whole_ones_are_integers() -> None:
    from decimal import Decimal

    large = [Decimal(9007199254740992 + n) for n in range(6)]
    assert ids_of(pl.Series(large, dtype=pl.Decimal(38, 0))) == ([str(one) for one in large], "integer")
    assert ids_of(pl.Series(["1.00", "2.50"]).cast(pl.Decimal(10, 2))) == (["1", "2.50"], "text")
    assert ids_of(pl.Series([1.0, 2.5])) == (["1", "2.5"], "text")
    assert ids_of(pl.Series([2**63 + 1], dtype=pl.UInt64)) == ([str(2**63 + 1)], "integer")
    with pytest.raises(SchemaError, match="neither text nor number"):
        ids_of(pl.Series([1], dtype=pl.Duration))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (pl.Series("u", ["a"]), "is a Series; expected a polars"),
        (pd.Series(["a"]), "is a Series; expected a polars"),
        ({"u": [1, 2], "i": [1]}, "columns need one name and one length each"),
        (pd.DataFrame([[1, 2]], columns=["u", "u"]), "columns need one name and one length each"),
    ],
)
def test_what_is_no_table_is_said(table: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Dataset.from_tables(table, schema={"interactions": {"user": "u", "item": "i"}})


def test_pandas_dates_of_any_unit_and_odd_kinds() -> None:
    table = pd.DataFrame(
        {"u": ["a", "b"], "i": ["x", "y"], "t": pd.to_datetime(["2020-01-01", "2020-01-02"]).astype("datetime64[s]")}
    )
    table["p"] = pd.period_range("2020-01", periods=2, freq="M")
    data = Dataset.from_tables(
        table, schema={"interactions": {"user": "u", "item": "i", "time": "t", "context": {"p": "category"}}}
    )
    assert data.interactions["time"].to_list() == [1577836800000000, 1577923200000000]
    assert data.context["p"].to_list() == ["2020-01", "2020-02"]


def test_user_and_item_must_be_two_columns() -> None:
    with pytest.raises(SchemaError, match="as user and as item"):
        Dataset.from_tables({"u": ["a"]}, schema={"interactions": {"user": "u", "item": "u"}})
    with pytest.raises(DataError, match="the interactions table is empty"):
        Dataset.from_tables(pl.DataFrame({"u": [], "i": []}))
