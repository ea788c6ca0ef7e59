"""Times in the shapes people write them, turned into numbers whose order is the order in time."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from gmlfm.data.columns import Origin, finite
from gmlfm.errors import DataError

_YEAR = r"^\d{4}[-/]\d{1,2}[-/]\d{1,2}"
_SHORT = r"^(\d{1,2})[/-](\d{1,2})[/-](?:\d{4}|\d{2})(?:\D|$)"  # whether day or month comes first depends on the column
_CLOCKS = ("", " %H:%M:%S%.f", " %H:%M")

# (which texts, which formats): a format is tried only where its shape fits, or "%Y" would take 03/04/19 for the year 3.
_ZONED = (_YEAR, ("%Y-%m-%dT%H:%M:%S%.f%#z", "%Y-%m-%d %H:%M:%S%.f%#z"))
_YEAR_FIRST = (
    _YEAR,
    tuple(date + clock for date in ("%Y-%m-%d", "%Y/%m/%d") for clock in (*_CLOCKS, "T%H:%M:%S%.f", "T%H:%M")),
)
_DIGITS = (r"^\d{8}$", ("%Y%m%d",))
_NAMED_MONTH = (
    r"[A-Za-z]",
    tuple(f"{date}{clock}" for date in ("%d %b %Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y", "%d-%b-%Y") for clock in _CLOCKS),
)


_REMEDY = "give its format ([interactions] time_format, [items] listed_format), or add the word to null"


def as_times(values: pl.Series, origin: Origin, time_format: str | None = None, remedy: str = _REMEDY) -> pl.Series:
    """Numbers stay numbers; dates and date texts become microseconds since 1970 (UTC where no zone is written).

    Where day and month could be exchanged the column as a whole decides: a first part above 12 somewhere says day first, a
    second part above 12 month first; both is refused, neither is read as month first.
    """
    if values.dtype.is_nested() or values.dtype in (pl.Object, pl.Binary):
        raise DataError(f"{origin.name}: column '{values.name}' holds {values.dtype}, which is no moment in time.")
    if values.dtype.is_numeric():
        return _numeric(values, origin)
    if values.dtype.is_temporal():
        return _microseconds(values, origin)
    text = values.cast(pl.String).str.strip_chars()
    text = text.set(text == "", None)
    numbers = text.cast(pl.Float64, strict=False)
    n_present = len(text) - text.null_count()
    n_numbers = len(numbers) - numbers.null_count()
    if time_format is None and n_numbers and 2 * n_numbers >= n_present and not _dates_as_digits(text):
        _refuse(text, numbers.is_null() & text.is_not_null(), values.name, origin, "a number", remedy)
        integers = text.cast(pl.Int64, strict=False)
        return integers if integers.null_count() == text.null_count() else _numeric(numbers, origin)
    result = pl.Series(values.name, [None], dtype=pl.Int64).new_from_index(0, len(text))
    for shape, formats in ((None, (time_format,)),) if time_format else _shapes(text, values.name, origin):
        for date_format in formats:
            pending = result.is_null() & text.is_not_null()
            if shape is not None:
                pending &= text.str.contains(shape)
            if pending.any():
                settled = ~pending.fill_null(False)
                result = result.zip_with(settled, _parse(text.set(settled, None), date_format, values.name))
    expected = f"a time like {time_format}" if time_format else "a date or a number"
    _refuse(text, result.is_null() & text.is_not_null(), values.name, origin, expected, remedy)
    return result


def in_order(times: pl.Series) -> npt.NDArray[Any]:
    """Times as numbers to sort by; a row without a time counts as earliest."""
    # The type's own minimum keeps missing times in front without turning int64 microseconds into floats.
    lowest = -np.inf if times.dtype.is_float() else np.iinfo(np.int64).min
    return times.fill_null(lowest).to_numpy()


def short_date(values: pl.Series) -> str | None:
    """The first date like 03/04/2019, of which only its column can tell whether the day comes first."""
    if values.dtype != pl.String:
        return None
    texts = values.str.strip_chars()
    matching = texts.filter(texts.str.contains(_SHORT).fill_null(False))
    return str(matching[0]) if len(matching) else None


def ambiguous_date(values: pl.Series) -> str | None:
    """The first date that has another meaning with the day first than with the month first, where no date proves either."""
    if values.dtype != pl.String:
        return None
    texts = values.str.strip_chars()
    left, right = _short_parts(texts)
    differing = (left != right).fill_null(False)
    if not differing.any() or bool((left > 12).any()) or bool((right > 12).any()):
        return None
    return str(texts.filter(differing)[0])


def ambiguity_warning(values: pl.Series, origin: Origin, key: str) -> str | None:
    """A sentence on a column whose dates could be read in two ways, that says how `key` decides; None where none could."""
    example = ambiguous_date(values)
    if example is None:
        return None
    day_first, month_first = _two_formats(example)
    return (
        f"{origin.name}: column '{values.name}' holds dates such as {example!r}, whose day and month could be exchanged; they "
        f'are read with the month first: set {key} = "{day_first}" where the day comes first, "{month_first}" where the month '
        "does."
    )


def _two_formats(example: str) -> tuple[str, str]:
    """How a short date is written with the day first and with the month first."""
    mark = "/" if "/" in example.split()[0] else "-"
    date, _, clock = example.partition(" ")
    year = "%Y" if re.search(r"\d{4}$", date) else "%y"
    of_day = {0: "", 1: " %H:%M", 2: " %H:%M:%S%.f" if "." in clock else " %H:%M:%S"}.get(clock.count(":"), "")
    return f"%d{mark}%m{mark}{year}{of_day}", f"%m{mark}%d{mark}{year}{of_day}"


def _short_parts(text: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Of dates like 03/04/2019 the first part and the second, missing elsewhere."""
    parts = text.str.extract_groups(_SHORT).struct.unnest()
    left, right = (parts[name].cast(pl.Int32, strict=False) for name in parts.columns)
    return left, right


def _proof(text: pl.Series) -> tuple[bool, bool]:
    """(some row proves day first, some row proves month first)."""
    left, right = _short_parts(text)
    return bool((left > 12).any()), bool((right > 12).any())


def _shapes(text: pl.Series, name: str, origin: Origin) -> list[tuple[str, tuple[str, ...]]]:
    day_first, month_first = _proof(text)
    if day_first and month_first:
        raise DataError(
            f"{origin.name}: column '{name}' writes some dates with the day first and some with the month first, such as "
            f"{text.filter(text.str.contains(_SHORT).fill_null(False))[0]!r}; write them alike, or as year-month-day."
        )
    order = "%d/%m" if day_first else "%m/%d"
    shapes = [_ZONED, _YEAR_FIRST, _DIGITS]
    for digits, year in ((r"\d{4}", "%Y"), (r"\d{2}", "%y")):
        for mark, date in (("/", order), ("-", order.replace("/", "-")), (".", "%d.%m")):
            shape = rf"^\d{{1,2}}\{mark}\d{{1,2}}\{mark}{digits}(?:\D|$)"
            shapes.append((shape, tuple(f"{date}{mark}{year}{clock}" for clock in _CLOCKS)))
    return [*shapes, _NAMED_MONTH]


def _refuse(text: pl.Series, failed: pl.Series, name: str, origin: Origin, expected: str, remedy: str) -> None:
    if failed.any():
        row = int(failed.arg_max() or 0)
        raise DataError(
            f"{origin.locate(row)}: column '{name}' holds {text[row]!r} where {expected} was expected "
            f"({int(failed.sum()):,} such rows); {remedy}."
        )


def _numeric(values: pl.Series, origin: Origin) -> pl.Series:
    """Whole numbers as int64, others as float64; NaN is missing."""
    if values.dtype.is_integer():
        return _as_int64(values)
    return finite(values.cast(pl.Float64).fill_nan(None), origin)


def _as_int64(values: pl.Series) -> pl.Series:
    """As floats where one of them is beyond 64 bits."""
    integers = values.cast(pl.Int64, strict=False)
    return integers if integers.null_count() == values.null_count() else values.cast(pl.Float64)


def _dates_as_digits(text: pl.Series) -> bool:
    present = text.drop_nulls()
    return bool(len(present)) and bool(present.str.contains(r"^(19|20)\d\d(0[1-9]|1[0-2])([0-2]\d|3[01])$").all())


def _parse(text: pl.Series, time_format: str, name: str) -> pl.Series:
    try:
        if "%z" in time_format or "%#z" in time_format:
            moments = text.str.strptime(pl.Datetime("us", "UTC"), time_format, strict=False)
        elif any(mark in time_format for mark in ("%H", "%I", "%T", "%R", "%s")):
            moments = text.str.strptime(pl.Datetime("us"), time_format, strict=False)
        else:
            moments = text.str.strptime(pl.Date, time_format, strict=False).cast(pl.Datetime("us"))
    except pl.exceptions.PolarsError as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"column '{name}': the time_format '{time_format}' cannot be used ({reason}).") from error
    return moments.to_physical().cast(pl.Int64)


def _microseconds(values: pl.Series, origin: Origin) -> pl.Series:
    if values.dtype in (pl.Time, pl.Duration):
        raise DataError(f"{origin.name}: column '{values.name}' holds {values.dtype}, which is no moment in time.")
    return values.cast(pl.Datetime("us")).to_physical().cast(pl.Int64)
