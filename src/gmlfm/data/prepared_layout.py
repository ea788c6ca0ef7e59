"""The columns of a prepared folder's tables: any engine may write them, so each is checked when it is read. Each check raises
ValueError with what does not fit; docs/prepared.md has the layout."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt
import polars as pl

from gmlfm.data.attributes import FieldCode, Part
from gmlfm.data.prepared_info import PreparedInfo

_N_PARTS = 4  # train, validation, test, unused
_PART_OF_FOLDER: dict[str, Part] = {"users": "user", "items": "item", "interactions": "context"}


def check_table(folder: str, frame: pl.DataFrame, info: PreparedInfo, *, is_whole: bool) -> None:
    """folder: values, users, items, interactions or history. is_whole: all columns were read, so none may be missing."""
    if folder == "values":
        _check_values(frame, info)
        return
    expected = _expected(folder, info)
    missing = [name for name, is_needed in expected.items() if is_needed and name not in frame.columns]
    if is_whole and missing:
        raise ValueError(f"it has no column '{missing[0]}'")
    for column in frame.iter_columns():
        _check_column(column, folder, info)


def numbers_below(values: pl.Series, n: int) -> npt.NDArray[Any]:
    """Whole numbers from 0 to n - 1, none missing."""
    if values.null_count() or not values.dtype.is_integer():
        raise ValueError(f"'{values.name}' is no column of whole numbers")
    numbers = values.to_numpy()
    if len(numbers) and not 0 <= numbers.min() <= numbers.max() < n:
        raise ValueError(f"'{values.name}' goes from {numbers.min()} to {numbers.max()}, expected 0 to {n - 1}")
    return numbers


def _expected(folder: str, info: PreparedInfo) -> dict[str, bool]:
    """The columns of a folder's tables, and whether they must be there."""
    if folder == "interactions":
        return dict.fromkeys(info.columns, True)
    if folder == "history":
        return dict.fromkeys(("user", "item", "before", "is_had", *(["time"] if "time" in info.columns else [])), True)
    fields = [code for code in info.fields if code.part == _PART_OF_FOLDER[folder] and code.kind != "id"]
    needed = ("number", "id", "rows", "x", *(f"field {code.name}" for code in fields))
    return {**dict.fromkeys(needed, True), "title": False, "listed": False}


def _check_column(column: pl.Series, folder: str, info: PreparedInfo) -> None:
    name, dtype = column.name, column.dtype
    limits = {"user": info.n_users, "item": info.n_items, "part": _N_PARTS}
    if folder in ("interactions", "history") and name in limits:
        numbers_below(column, limits[name])
        return
    if folder == "history" and name == "before":
        if len(numbers_below(column, info.n_interactions + 1)) and not column.is_sorted():
            raise ValueError("'before' does not ascend")
        return
    if folder in ("users", "items") and name == "number":
        numbers_below(column, info.n_users if folder == "users" else info.n_items)
        return
    if name in ("positive", "is_history", "is_had"):
        is_right = dtype == pl.Boolean and not column.null_count()
    elif name == "id":
        is_right = dtype == pl.String and not column.null_count()
    elif name in ("rows", "x"):
        inner = dtype.inner if isinstance(dtype, pl.List) else None
        is_right = (
            inner is not None and (inner.is_integer() if name == "rows" else inner.is_float()) and not column.null_count()
        )
    elif name in ("time", "listed", "label", "weight"):
        is_right = dtype in (pl.Int64, pl.Float64) or (dtype.is_numeric() and name in ("label", "weight"))
    elif name == "title":
        is_right = dtype == pl.String
    else:
        is_right = _is_field(column, folder, info)
    if not is_right:
        raise ValueError(f"its column '{name}' is of type {dtype}")


def _is_field(column: pl.Series, folder: str, info: PreparedInfo) -> bool:
    """Whether a column that holds a field as it came has the type of its kind; other columns may be what they like."""
    prefix = "context " if folder == "interactions" else "field "
    kinds = {f"{prefix}{code.name}": code.kind for code in info.fields if code.part == _PART_OF_FOLDER.get(folder)}
    dtypes = {"number": pl.Float64(), "category": pl.String(), "set": pl.List(pl.String())}
    kind = kinds.get(column.name)
    return kind is None or column.dtype == dtypes[kind]


def _check_values(frame: pl.DataFrame, info: PreparedInfo) -> None:
    if frame.schema.get("value") != pl.String or "field" not in frame.columns or frame["value"].null_count():
        raise ValueError("expected the columns field and value")
    numbers_below(frame["field"], len(info.fields))
    counts = dict(frame["field"].value_counts().iter_rows())

    def n_texts(code: FieldCode) -> int:
        return code.n_values if code.kind in ("category", "set") else 0

    for index, code in enumerate(info.fields):
        if code.kind != "id" and counts.get(index, 0) != n_texts(code):
            raise ValueError(f"{code.name} has {counts.get(index, 0):,} texts instead of {n_texts(code):,}")
