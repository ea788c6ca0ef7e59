"""The conditions of a `dataset.toml` on the rows of a table: which rows are used, and which are positives."""

from __future__ import annotations

import polars as pl

from gmlfm.data.columns import Origin, as_number, as_text, column
from gmlfm.data.expressions import Columns, holds
from gmlfm.data.schema import InteractionsSchema


def rows_that_hold(condition: str, table: pl.DataFrame, origin: Origin, decimal: str | None, key: str) -> pl.Series:
    """A Boolean for each row of a table; `key` is the one under which the schema has the condition."""
    columns = Columns(
        number=lambda name: as_number(column(table, name, origin, key), origin, decimal),
        text=lambda name: as_text(column(table, name, origin, key), origin),
    )
    return holds(condition, columns)


def named_columns(condition: str | None) -> list[str]:
    """The columns that a condition names, each once."""
    names: list[str] = []

    def empty(name: str, dtype: pl.DataType) -> pl.Series:
        names.append(name)
        return pl.Series(name, [], dtype=dtype)

    if condition is not None:
        holds(condition, Columns(number=lambda name: empty(name, pl.Float64()), text=lambda name: empty(name, pl.String())))
    return list(dict.fromkeys(names))


def used_rows(table: pl.DataFrame, spec: InteractionsSchema, origin: Origin) -> tuple[pl.DataFrame, Origin]:
    """The rows that `where` lets through, and an origin that still names the place of each in its file."""
    if spec.where is None:
        return table, origin
    is_used = rows_that_hold(spec.where, table, origin, spec.read.decimal, "where")
    places = is_used.arg_true()
    return table.filter(is_used), Origin(origin.name, lambda row: origin.locate(int(places[row])))


def nothing_used(name: str, where: str | None) -> str:
    return f'{name}: no row fulfils where = "{where}", so nothing is left; change the condition, or leave it out.'


def left_out_note(n_left_out: int, n_rows: int, where: str | None) -> str:
    return f'{n_left_out:,} of {n_rows:,} rows of the interactions are left out, as where = "{where}" says.'
