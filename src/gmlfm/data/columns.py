"""From a caller's column to the form its kind asks for. Each failure names the table, the column and the row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import polars as pl

from gmlfm.data.schema import Field
from gmlfm.errors import DataError, SchemaError, did_you_mean

IdType = Literal["text", "integer"]


@dataclass(frozen=True)
class Origin:
    """Where a table came from, so that a message can name the place: file and line, or table and row."""

    name: str
    place_of: Callable[[int], str] | None = None

    def locate(self, row: int) -> str:
        return self.place_of(row) if self.place_of else f"{self.name} row {row + 1}"


def column(table: pl.DataFrame, name: str, origin: Origin, needed_for: str) -> pl.Series:
    if name not in table.columns:
        raise SchemaError(f"{origin.name} has no column '{name}', which {needed_for} names{did_you_mean(name, table.columns)}")
    return table[name]


def without_prefix(table: pl.DataFrame, prefix: str) -> pl.DataFrame:
    """The columns whose names begin with `prefix`, named without it: how stored tables set a caller's columns apart."""
    return table.select(pl.col(name).alias(name.removeprefix(prefix)) for name in table.columns if name.startswith(prefix))


def as_ids(values: pl.Series, origin: Origin) -> tuple[pl.Series, IdType]:
    """Ids as text, and whether they were whole numbers, so that they can be given back as they came.

    A whole float is written as an integer (pandas makes floats of integers beside a missing value), each for itself, so that
    a table read in pieces gives the same ids.
    """
    text = as_text(values, origin)
    if values.dtype == pl.String or not values.dtype.is_numeric():
        return text, "text"
    # Whole numbers of any width: a hash of 64 bits without a sign is beyond Int64.
    integers = text.drop_nulls().cast(pl.Int128, strict=False)
    return text, "integer" if len(integers) and integers.null_count() == 0 else "text"


def as_text(values: pl.Series, origin: Origin) -> pl.Series:
    """One text a row; NaN counts as missing, an empty text does not; a whole float or decimal is written as an integer."""
    if isinstance(values.dtype, (pl.List, pl.Array)):
        row = int(values.is_not_null().arg_max() or 0)
        raise SchemaError(
            f"{origin.locate(row)}: column '{values.name}' holds lists but one value was expected; "
            'declare it as { kind = "set" }.'
        )
    if isinstance(values.dtype, pl.Struct) or values.dtype in (pl.Object, pl.Binary, pl.Duration):
        raise SchemaError(f"{origin.name}: column '{values.name}' holds {values.dtype}, which is neither text nor number.")
    if values.dtype.is_float():
        present = values.fill_nan(None)
        # Beyond 2^53 a float no longer tells one whole number from the next: it stays as it is written.
        is_whole = ((present % 1 == 0) & (present.abs() < 2.0**53)).fill_null(False)
        integers = present.set(~is_whole, None).cast(pl.Int64).cast(pl.String)
        return integers.zip_with(is_whole, present.cast(pl.String))
    text = values.cast(pl.String)
    return text.str.replace(r"\.0+$", "") if isinstance(values.dtype, pl.Decimal) else text


def as_set(values: pl.Series, field: Field, origin: Origin) -> pl.Series:
    """A list of distinct texts a row, in their first order; a missing set stays missing, an empty one stays empty."""
    if isinstance(values.dtype, (pl.List, pl.Array)):
        lists = values.cast(pl.List(pl.String))
    else:
        text = as_text(values, origin)
        if field.separator is None:
            raise SchemaError(
                f"{origin.name}: column '{values.name}' is declared a set but holds one text a row; "
                'say what stands between two values: { kind = "set", separator = "|" }.'
            )
        lists = text.str.split(field.separator).list.eval(pl.element().str.strip_chars())
        lists = lists.list.eval(pl.element().filter(pl.element() != ""))
    return lists.list.drop_nulls().list.unique(maintain_order=True)


def as_number(values: pl.Series, origin: Origin, decimal: str | None = None) -> pl.Series:
    """One float64 a row; NaN counts as missing, infinities stay; text that is no number is refused."""
    dtype = values.dtype
    if dtype.is_numeric() or dtype in (pl.Boolean, pl.Null):
        return values.cast(pl.Float64).fill_nan(None)
    if dtype.is_temporal():
        raise SchemaError(f"{origin.name}: column '{values.name}' holds dates but a number was expected.")
    text = as_text(values, origin).str.strip_chars()
    numeric = text.str.replace_all(decimal, ".", literal=True) if decimal and decimal != "." else text
    numbers = numeric.cast(pl.Float64, strict=False)
    failed = numbers.is_null() & text.is_not_null() & (text != "")
    if failed.any():
        row = int(failed.arg_max() or 0)
        raise DataError(
            f"{origin.locate(row)}: column '{values.name}' holds {text[row]!r} where a number was expected "
            f"({int(failed.sum()):,} such rows); declare it a category, add the word to null, or set decimal."
        )
    return numbers.fill_nan(None)


def finite(numbers: pl.Series, origin: Origin) -> pl.Series:
    """The numbers themselves; refused where one of them is infinite, which no table means."""
    is_infinite = numbers.is_infinite().fill_null(False)
    if is_infinite.any():
        raise DataError(
            f"{origin.locate(int(is_infinite.arg_max() or 0))}: the column '{numbers.name}' is infinite; give a finite number, "
            f"or none where it is not known ({int(is_infinite.sum()):,} such rows)."
        )
    return numbers


def as_field(values: pl.Series, field: Field, origin: Origin, decimal: str | None = None) -> pl.Series:
    if field.kind == "number":
        return finite(as_number(values, origin, decimal), origin)
    return as_set(values, field, origin) if field.kind == "set" else as_text(values, origin)
