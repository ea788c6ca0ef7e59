from __future__ import annotations

import polars as pl
import pytest

from gmlfm.data.prepared import PreparedData
from gmlfm.data.prepared_layout import check_table, numbers_below


def table_of(prepared: PreparedData, folder: str) -> pl.DataFrame:
    path = prepared.folder / ("values.parquet" if folder == "values" else f"{folder}/00000.parquet")
    return pl.read_parquet(path)


@pytest.mark.parametrize("folder", ["values", "users", "items", "interactions"])
def test_what_preparing_writes_fits(small_prepared: PreparedData, folder: str) -> None:
    check_table(folder, table_of(small_prepared, folder), small_prepared.info, is_whole=True)


@pytest.mark.parametrize(
    ("folder", "change", "message"),
    [
        ("interactions", pl.lit(-1, pl.Int32).alias("user"), "'user' goes from -1 to -1, expected 0 to"),
        ("interactions", pl.lit(10**6, pl.Int32).alias("item"), "'item' goes from 1000000 to 1000000"),
        ("interactions", pl.lit(4, pl.Int8).alias("part"), "'part' goes from 4 to 4, expected 0 to 3"),
        ("interactions", pl.lit(None, pl.Int32).alias("user"), "'user' is no column of whole numbers"),
        ("interactions", pl.lit(1.5).alias("item"), "'item' is no column of whole numbers"),
        ("interactions", pl.lit(None, pl.Boolean).alias("positive"), "'positive' is of type Boolean"),
        ("interactions", pl.lit("now").alias("time"), "'time' is of type String"),
        ("users", pl.lit(10**6).alias("number"), "'number' goes from"),
        ("users", pl.lit(None, pl.String).alias("id"), "'id' is of type String"),
        ("items", pl.lit(3).alias("rows"), "'rows' is of type"),
        ("items", pl.lit([1], pl.List(pl.Int32)).alias("x"), "'x' is of type List"),
        ("items", pl.lit(3).alias("field category"), "'field category' is of type"),
        ("values", pl.lit(99).alias("field"), "'field' goes from 99 to 99"),
        ("values", pl.lit(3).alias("value"), "expected the columns field and value"),
    ],
)
def test_what_another_engine_got_wrong_is_named(
    small_prepared: PreparedData, folder: str, change: pl.Expr, message: str
) -> None:
    table = table_of(small_prepared, folder).with_columns(change)
    with pytest.raises(ValueError, match=message):
        check_table(folder, table, small_prepared.info, is_whole=True)


@pytest.mark.parametrize(("folder", "column"), [("interactions", "part"), ("users", "rows"), ("items", "field category")])
def test_a_column_may_not_be_missing_unless_some_were_asked_for(small_prepared: PreparedData, folder: str, column: str) -> None:
    table = table_of(small_prepared, folder).drop(column)
    with pytest.raises(ValueError, match=f"it has no column '{column}'"):
        check_table(folder, table, small_prepared.info, is_whole=True)
    check_table(folder, table, small_prepared.info, is_whole=False)


def test_each_field_has_its_texts(small_prepared: PreparedData) -> None:
    table = table_of(small_prepared, "values")
    field = int(table["field"][0])
    with pytest.raises(ValueError, match=r"has [\d,]+ texts instead of [\d,]+"):
        check_table(
            "values",
            table.filter(~((pl.col("field") == field) & (pl.int_range(pl.len()) == 0))),
            small_prepared.info,
            is_whole=True,
        )


def test_numbers_are_whole_and_below() -> None:
    assert numbers_below(pl.Series("a", [0, 2], dtype=pl.Int32), 3).tolist() == [0, 2]
    assert numbers_below(pl.Series("a", [], dtype=pl.Int32), 0).tolist() == []
