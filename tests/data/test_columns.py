from __future__ import annotations

from decimal import Decimal

import polars as pl
import pytest

from gmlfm.data.columns import Origin, as_field, as_ids, as_number, without_prefix
from gmlfm.data.schema import Field
from gmlfm.errors import DataError, SchemaError


def ids_of(values: pl.Series) -> tuple[list[str], str]:
    ids, id_type = as_ids(values, Origin("table"))
    return ids.to_list(), id_type


def test_decimal_and_float_ids_stay_distinct_and_whole_ones_are_integers() -> None:
    large = [Decimal(9007199254740992 + n) for n in range(6)]
    assert ids_of(pl.Series(large, dtype=pl.Decimal(38, 0))) == ([str(number) for number in large], "integer")
    assert ids_of(pl.Series(["1.00", "2.50"]).cast(pl.Decimal(10, 2))) == (["1", "2.50"], "text")
    assert ids_of(pl.Series([1.0, 2.5])) == (["1", "2.5"], "text")
    assert ids_of(pl.Series([2**63 + 1], dtype=pl.UInt64)) == ([str(2**63 + 1)], "integer")
    with pytest.raises(SchemaError, match="neither text nor number"):
        ids_of(pl.Series([1], dtype=pl.Duration))


@pytest.mark.parametrize("values", [[1.0, None, float("inf"), float("-inf")], ["1", None, "inf", "-Infinity"]])
def test_infinite_numbers_are_refused_in_fields_and_not_in_conditions(values: list[object]) -> None:
    column = pl.Series("price", values)
    with pytest.raises(DataError, match=r"table row 3: the column 'price' is infinite; give a finite number.*\(2 such rows\)"):
        as_field(column, Field("price", "number"), Origin("table"))
    assert as_number(column, Origin("table")).to_list() == [1.0, None, float("inf"), float("-inf")]


def test_an_origin_names_the_row_or_what_the_reader_knows_of_it() -> None:
    assert Origin("the users table").locate(2) == "the users table row 3"
    assert Origin("a.csv", lambda row: f"a.csv line {row + 2}").locate(2) == "a.csv line 4"


def test_columns_with_a_prefix_lose_it() -> None:
    table = pl.DataFrame({"user": [1], "context user": [2], "context device": [3]})
    assert without_prefix(table, "context ").to_dicts() == [{"user": 2, "device": 3}]
    assert without_prefix(table, "field ").width == 0
