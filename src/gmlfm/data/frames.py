"""Tables of any maker as polars frames: polars, pandas, and whatever speaks Arrow's C interface."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from gmlfm.errors import DataError


def as_frame(table: Any, name: str) -> pl.DataFrame:
    if isinstance(table, pl.LazyFrame):
        return table.collect()
    if isinstance(table, pl.DataFrame):
        return table
    if type(table).__module__.partition(".")[0] == "pandas" and hasattr(table, "columns"):
        return pl.DataFrame([_pandas_column(str(key), table[key]) for key in table.columns])
    if hasattr(table, "__arrow_c_stream__"):
        return pl.DataFrame(table)
    if isinstance(table, dict):
        return pl.DataFrame([_column(str(key), list(values)) for key, values in table.items()])
    raise DataError(f"the {name} table is a {type(table).__name__}; expected a polars, pandas or Arrow table.")


def _pandas_column(name: str, column: Any) -> pl.Series:
    """Without pyarrow, which pandas' own export would need."""
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "biufM":
        return pl.Series(name, column.to_numpy(copy=True), nan_to_null=True)
    missing = column.isna().to_numpy()
    return _column(name, [None if gone else value for value, gone in zip(column.tolist(), missing, strict=True)])


def _column(name: str, values: list[Any]) -> pl.Series:
    """Lists stay lists, one kind of value keeps its type, a mixture becomes text."""
    present = [value for value in values if value is not None]
    if any(isinstance(value, (list, tuple, set, frozenset, np.ndarray)) for value in present):
        return pl.Series(name, [_texts(value) for value in values], dtype=pl.List(pl.String))
    if any(isinstance(value, str) for value in present):
        return pl.Series(name, [None if value is None else str(value) for value in values], dtype=pl.String)
    return pl.Series(name, values, strict=False)


def _texts(value: Any) -> list[str] | None:
    if value is None:
        return None
    members = sorted(value, key=str) if isinstance(value, (set, frozenset)) else value
    if isinstance(members, str) or not hasattr(members, "__iter__"):
        members = [members]
    return [str(member) for member in members if member is not None]
