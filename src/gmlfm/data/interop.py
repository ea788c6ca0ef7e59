"""Tables of any maker as polars frames: polars, pandas, and whatever speaks Arrow's C interface."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from gmlfm.arguments import shown
from gmlfm.errors import DataError
from gmlfm.reading import READ_ERRORS, reason


def is_table(value: Any) -> bool:
    """Whether as_frame makes a table of it: of polars, pandas, Arrow, or a dict of columns."""
    if isinstance(value, pl.LazyFrame | pl.DataFrame | dict):
        return True
    if type(value).__name__ == "Series":
        return False
    return hasattr(value, "__arrow_c_stream__") or (_maker(value) == "pandas" and hasattr(value, "columns"))


def _maker(value: Any) -> str:
    """The package that a value's class comes from."""
    return type(value).__module__.partition(".")[0]


def as_frame(table: Any, name: str) -> pl.DataFrame:
    if isinstance(table, pl.LazyFrame):
        return table.collect()
    if isinstance(table, pl.DataFrame):
        return table
    if not is_table(table):
        raise DataError(f"the {name} table is a {type(table).__name__}; expected a polars, pandas or Arrow table.")
    try:
        if _maker(table) == "pandas":
            names = [str(key) for key in table.columns]
            return pl.DataFrame([_pandas_column(key, table.iloc[:, index]) for index, key in enumerate(names)])
        if isinstance(table, dict):
            return pl.DataFrame([_column(str(key), _listed(values)) for key, values in table.items()])
        return pl.DataFrame(table)
    except pl.exceptions.PolarsError as error:
        raise DataError(
            f"the {name} table cannot be used: {reason(error)}; columns need one name and one length each."
        ) from error
    except READ_ERRORS as error:
        # Half a surrogate pair, a number of 5,000 digits, lists in lists without end: what no text or number can be.
        raise DataError(f"the {name} table holds a value that cannot be used ({reason(error)}).") from error


def _pandas_column(name: str, column: Any) -> pl.Series:
    """Without pyarrow, which an export by pandas would need."""
    if isinstance(column.dtype, np.dtype) and column.dtype.kind == "M":
        return pl.Series(name, column.to_numpy().astype("datetime64[us]"))
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "biuf":
        return pl.Series(name, column.to_numpy(copy=True), nan_to_null=True)
    missing = column.isna().to_numpy()
    return _column(name, [None if is_missing else value for value, is_missing in zip(column.tolist(), missing, strict=True)])


def _column(name: str, values: list[Any]) -> pl.Series:
    """Lists stay lists, one kind of value keeps its type, a mixture becomes text."""
    present = [value for value in values if value is not None]
    if any(isinstance(value, (list, tuple, set, frozenset, np.ndarray)) for value in present):
        return pl.Series(name, [_texts(value) for value in values], dtype=pl.List(pl.String))
    if not any(isinstance(value, str) for value in present):
        try:
            column = pl.Series(name, values)
            if column.dtype != pl.Object:
                return column
        except (TypeError, OverflowError, pl.exceptions.PolarsError):
            pass  # several kinds in one column, or one that polars has no type for, such as a number of 50 digits
    return pl.Series(name, [None if value is None else str(value) for value in values], dtype=pl.String)


def _listed(values: Any) -> list[Any]:
    if isinstance(values, str | bytes) or not hasattr(values, "__iter__"):
        raise DataError(f"a column is {shown(values)}; expected a list of values.")
    return list(values)


def _texts(value: Any) -> list[str] | None:
    if value is None:
        return None
    members = sorted(value, key=str) if isinstance(value, (set, frozenset)) else value
    if isinstance(members, str) or not hasattr(members, "__iter__"):
        members = [members]
    return [str(member) for member in members if member is not None]
