from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from gmlfm import Dataset
from gmlfm.errors import DataError, GmlfmError, SchemaError
from tests.data.arbitrary import INTERACTIONS, ITEMS, SCHEMA, USERS, build


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


def test_who_is_in_no_table_is_numbered_by_id_whatever_row_comes_first() -> None:
    table = pl.DataFrame({"user": ["u2", "u10", "u1"], "item": ["c", "a", "b"]})
    for rows in (table, table.reverse()):
        data = Dataset.from_tables(rows, schema={"interactions": {"user": "user", "item": "item"}})
        assert data.users.ids.to_list() == ["u1", "u10", "u2"]
        assert data.items.ids.to_list() == ["a", "b", "c"]


def test_repeated_pairs_are_merged_into_the_latest_and_weights_add_up() -> None:
    data = build()
    assert data.interactions.rows() == [(1, 0, 6, None, 2.0, True), (0, 1, 7, 3.0, 4.0, True), (2, 3, 8, 4.0, 4.0, True)]
    assert any("1 repeated rows were merged" in warning for warning in data.warnings)
    unmerged = build(schema={**SCHEMA, "interactions": {**SCHEMA["interactions"], "repeats": "keep"}})
    assert unmerged.n_interactions == 4
    assert (data.history_rows.rows(), unmerged.history_rows.rows()) == ([(0, 1, 0, True, 5)], [])


def test_another_context_is_another_occasion() -> None:
    data = build(interactions=pl.DataFrame({**INTERACTIONS, "on": ["web", "app", "app", "app"]}))
    assert data.n_interactions == 4
    assert data.context["on"].to_list() == ["web", "app", "app", "app"]


def test_unlisted_items_are_kept_and_counted_but_refused_when_strict() -> None:
    assert any(
        "1 items (1 interactions) have no row in the items table, such as 'c'" in warning for warning in build().warnings
    )
    with pytest.raises(DataError, match=r"the interactions table row 4: 1 users .* add them, or drop strict"):
        build(strict=True)


def test_positive_may_ask_for_members_of_a_declared_set() -> None:
    table = {"u": [1, 2, 3], "i": ["a", "b", "c"], "mood": ["calm|late", "busy", None]}
    interactions = {"user": "u", "item": "i", "context": {"mood": {"kind": "set", "separator": "|"}}}
    schema = {"interactions": {**interactions, "positive": "not mood contains 'late'"}}
    assert Dataset.from_tables(table, schema=schema).interactions["positive"].to_list() == [False, True, False]
    with pytest.raises(
        SchemaError, match=r"the interactions table has no column 'moods', which positive names; did you mean 'mood'"
    ):
        Dataset.from_tables(table, schema={"interactions": {**interactions, "positive": "moods contains 'late'"}})


def test_positive_is_a_condition_and_missing_does_not_fulfil_it() -> None:
    data = build(schema={**SCHEMA, "interactions": {**SCHEMA["interactions"], "positive": "stars >= 3 and on != 'tv'"}})
    assert data.interactions["positive"].to_list() == [False, True, True]
    assert data.positive_rows.tolist() == [1, 2]
    assert data.rows_for("rating").tolist() == [1, 2]
    assert data.rows_for("topn").tolist() == [1, 2]


def test_dates_that_could_be_read_in_two_ways_are_warned_of() -> None:
    schema = {"interactions": {"user": "u", "item": "i", "time": "t"}, "items": {"id": "i", "listed": "l"}}
    rows = {"u": ["a", "b"], "i": ["x", "y"], "t": ["03/04/2019", "05/04/2019"]}
    things = {"i": ["x", "y"], "l": ["01/02/2019", "02/02/2019"]}
    warnings = Dataset.from_tables(rows, items=things, schema=schema).warnings
    assert [warning.partition(": column")[0] for warning in warnings] == ["the items table", "the interactions table"]
    assert 'set [items] listed_format = "%d/%m/%Y" where the day comes first' in warnings[0]
    assert 'set [interactions] time_format = "%d/%m/%Y" where the day comes first' in warnings[1]
    decided = {"time_format": "%d/%m/%Y"}, {"listed_format": "%m/%d/%Y"}
    schema = {"interactions": {**schema["interactions"], **decided[0]}, "items": {**schema["items"], **decided[1]}}
    assert Dataset.from_tables(rows, items=things, schema=schema).warnings == ()


def filtered(where: str, **changes: Any) -> Dataset:
    return build(schema={**SCHEMA, "interactions": {**SCHEMA["interactions"], "where": where}}, **changes)


def test_where_chooses_rows_before_anything_is_asked_of_them() -> None:
    rows = {**INTERACTIONS, "u": [1, 2, None, 3], "stars": [1.0, None, float("inf"), 4.0], "n": [1, 2, 3, 0]}
    data = filtered("stars < 4", interactions=rows)  # leaves out the infinite one, the one without user, the one of weight 0
    assert data.users.ids.to_list() == ["1", "2"]
    assert data.items.ids.to_list() == ["b", "a", "z"]  # c was only in a row that is left out
    assert data.interactions.select("label", "weight").rows() == [(1.0, 1.0)]
    assert '3 of 4 rows of the interactions are left out, as where = "stars < 4" says.' in data.warnings
    assert data.content_hash != build().content_hash
    chosen = build(interactions=pl.DataFrame(INTERACTIONS).filter(pl.col("stars") >= 3))
    assert filtered("stars >= 3").content_hash == chosen.content_hash


def test_where_that_leaves_all_or_nothing() -> None:
    assert filtered("t > 0").content_hash == build().content_hash
    assert not any("left out" in warning for warning in filtered("t > 0").warnings)
    with pytest.raises(DataError, match='the interactions table: no row fulfils where = "t > 90", so nothing is left'):
        filtered("t > 90")
    with pytest.raises(DataError, match="the interactions table row 4: column 'n' holds the weight"):
        filtered("t > 6", interactions={**INTERACTIONS, "n": [0, 1, 1, 0]})


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"interactions": {**INTERACTIONS, "u": [None] * 4}}, DataError, "4 row(s) of the interactions"),
        ({"interactions": {"u": [1], "itm": ["a"]}}, SchemaError, "has no column 'i'"),
        ({"interactions": {**INTERACTIONS, "stars": ["1", "2", "good", "4"]}}, DataError,
         "the interactions table row 3: column 'stars' holds 'good' where a number was expected"),
        ({"interactions": {**INTERACTIONS, "stars": [1.0, float("inf"), 1.0, 1.0]}}, DataError, "row 2: the column 'stars' is infinite; give a finite number"),
        ({"interactions": {**INTERACTIONS, "n": [1.0, 1.0, float("inf"), 1.0]}}, DataError, "row 3: column 'n' holds the weight inf"),
        ({"interactions": {**INTERACTIONS, "t": [1.0, 1.0, 2.0, float("inf")]}}, DataError, "row 4: the column 't' is infinite"),
        ({"users": {**USERS, "age": [30.0, float("-inf")]}}, DataError, "the users table row 2: the column 'age' is infinite"),
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


def test_user_and_item_must_be_two_columns() -> None:
    with pytest.raises(SchemaError, match="as user and as item"):
        Dataset.from_tables({"u": ["a"]}, schema={"interactions": {"user": "u", "item": "u"}})
    with pytest.raises(DataError, match="the interactions table is empty"):
        Dataset.from_tables(pl.DataFrame({"u": [], "i": []}))
