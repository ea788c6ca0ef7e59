from __future__ import annotations

import polars as pl
import pytest

from gmlfm.data.columns import Origin
from gmlfm.data.row_filter import named_columns, rows_that_hold, used_rows
from gmlfm.data.schema import InteractionsSchema, ReadOptions
from gmlfm.errors import SchemaError

TABLE = pl.DataFrame({"u": ["a", "b", "c"], "i": ["x", "y", "z"], "stars": ["4,5", None, "0"], "shop": ["web", "web", "test"]})
ORIGIN = Origin("rows.csv")
PLAIN = InteractionsSchema("u", "i")
COMMAS = InteractionsSchema("u", "i", read=ReadOptions(decimal=","))


def test_rows_hold_by_numbers_and_texts() -> None:
    assert rows_that_hold("stars > 0.5", TABLE, COMMAS, ORIGIN, "where").to_list() == [True, False, False]
    assert rows_that_hold("shop != 'test'", TABLE, PLAIN, ORIGIN, "where").to_list() == [True, True, False]
    with pytest.raises(SchemaError, match=r"rows.csv has no column 'shp', which where names; did you mean 'shop'"):
        rows_that_hold("shp = 'x'", TABLE, PLAIN, ORIGIN, "where")


def test_the_columns_of_a_condition_are_known_without_a_table() -> None:
    assert named_columns("stars >= 4 and (`the shop` in ('a', 'b') or not stars < 2) or note is null") == [
        "stars",
        "the shop",
        "note",
    ]
    assert named_columns(None) == []
    with pytest.raises(SchemaError, match="expects a column's name"):
        named_columns("")


def test_used_rows_keep_their_places() -> None:
    spec = InteractionsSchema("u", "i", where="stars is null or shop = 'test'")
    table, origin = used_rows(TABLE, spec, ORIGIN)
    assert table["u"].to_list() == ["b", "c"]
    assert [origin.locate(row) for row in (0, 1)] == ["rows.csv row 2", "rows.csv row 3"]
    assert used_rows(TABLE, InteractionsSchema("u", "i"), ORIGIN) == (TABLE, ORIGIN)
