"""The conditions of a `dataset.toml` on the rows of the interactions: which are used, and which are positives."""

from __future__ import annotations

import polars as pl

from gmlfm.data.columns import Origin
from gmlfm.data.conditions import Both, Condition, Either, Not, parse
from gmlfm.data.expressions import Columns, holds
from gmlfm.data.schema import InteractionsSchema


def rows_that_hold(condition: str, table: pl.DataFrame, spec: InteractionsSchema, origin: Origin, key: str) -> pl.Series:
    """A Boolean for each row of a table; `key` is the one under which the schema has the condition."""
    return holds(condition, Columns.of(table, origin, key, spec.read.decimal, spec.context))


def named_columns(condition: str | None) -> list[str]:
    """The columns that a condition names, each once."""
    return [] if condition is None else list(dict.fromkeys(_columns(parse(condition))))


def _columns(condition: Condition) -> list[str]:
    match condition:
        case Both(terms) | Either(terms):
            return [name for term in terms for name in _columns(term)]
        case Not(term):
            return _columns(term)
        case _:
            return [condition.column]


def used_rows(table: pl.DataFrame, spec: InteractionsSchema, origin: Origin) -> tuple[pl.DataFrame, Origin]:
    """The rows that `where` lets through, and an origin that still names the place of each in its file."""
    if spec.where is None:
        return table, origin
    return chosen_rows(table, rows_that_hold(spec.where, table, spec, origin, "where"), origin)


def chosen_rows(table: pl.DataFrame, is_chosen: pl.Series, origin: Origin) -> tuple[pl.DataFrame, Origin]:
    """Some rows of a table, and an origin that still names the place of each in its file."""
    if is_chosen.all():
        return table, origin
    places = is_chosen.arg_true()
    return table.filter(is_chosen), Origin(origin.name, lambda row: origin.locate(int(places[row])))


def nothing_used(name: str, where: str | None) -> str:
    return f'{name}: no row fulfils where = "{where}", so nothing is left; change the condition, or leave it out.'


def left_out_note(n_left_out: int, n_rows: int, where: str | None) -> str:
    return f'{n_left_out:,} of {n_rows:,} rows of the interactions are left out, as where = "{where}" says.'
