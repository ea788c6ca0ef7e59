"""Times in the shapes people write them, turned into numbers whose order is the order in time."""

from __future__ import annotations

import polars as pl

from gmlfm.data.columns import Origin
from gmlfm.errors import DataError

ZONED = ("%Y-%m-%dT%H:%M:%S%.f%#z", "%Y-%m-%d %H:%M:%S%.f%#z")
YEAR_FIRST = (
    "%Y-%m-%d %H:%M:%S%.f",
    "%Y-%m-%dT%H:%M:%S%.f",
    "%Y-%m-%d %H:%M",
    "%Y-%m-%dT%H:%M",
    "%Y-%m-%d",
    "%Y/%m/%d %H:%M:%S",
    "%Y/%m/%d %H:%M",
    "%Y/%m/%d",
    "%Y%m%d",
)
DAY_FIRST = ("%d.%m.%Y", "%d/%m/%Y", "%d-%m-%Y")
MONTH_FIRST = ("%m/%d/%Y", "%m-%d-%Y")
NAMED_MONTH = ("%d %b %Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y", "%d-%b-%Y")
CLOCKS = ("", " %H:%M:%S", " %H:%M")


def as_times(values: pl.Series, origin: Origin, time_format: str | None = None) -> pl.Series:
    """Numbers stay numbers; dates and date texts become microseconds since 1970 (UTC where no zone is written).

    Every shape above is tried on what the earlier ones left; where day and month could be either, the day is taken to
    come first only if some row of the column proves it (a first part above 12) and no row proves the opposite.
    """
    if values.dtype.is_numeric():
        return values.fill_nan(None) if values.dtype.is_float() else values.cast(pl.Int64)
    if values.dtype.is_temporal():
        return _microseconds(values, origin)
    text = values.cast(pl.String).str.strip_chars()
    text = text.set(text == "", None)
    numbers = text.cast(pl.Float64, strict=False)
    if time_format is None and numbers.null_count() == text.null_count() and not _dates_as_digits(text):
        whole = text.cast(pl.Int64, strict=False)
        return whole if whole.null_count() == text.null_count() else numbers
    formats = (time_format,) if time_format else _formats_for(text)
    result = pl.Series(values.name, [None], dtype=pl.Int64).new_from_index(0, len(text))
    for one in formats:
        left = result.is_null() & text.is_not_null()
        if not left.any():
            break
        result = result.zip_with(~left, _parse(text.set(~left, None), one))
    failed = result.is_null() & text.is_not_null()
    if failed.any():
        row = int(failed.arg_max() or 0)
        expected = f"a time like {time_format}" if time_format else "a date or a number"
        raise DataError(
            f"{origin.at(row)}: column '{values.name}' holds {text[row]!r} where {expected} was expected "
            f"({int(failed.sum()):,} such rows); give time_format, or add the word to null."
        )
    return result


def day_comes_first(text: pl.Series) -> bool | None:
    """Whether dates like 03/04/2019 are day first, as far as the column proves it; None where it proves nothing."""
    parts = text.str.extract_groups(r"^(\d{1,2})[/.-](\d{1,2})[/.-]\d{4}").struct.unnest()
    first = parts[parts.columns[0]].cast(pl.Int32, strict=False).max()
    second = parts[parts.columns[1]].cast(pl.Int32, strict=False).max()
    if first is None or second is None:
        return None
    if int(first) > 12 >= int(second):  # type: ignore[arg-type]
        return True
    return False if int(second) > 12 >= int(first) else None  # type: ignore[arg-type]


def _formats_for(text: pl.Series) -> list[str]:
    day_first = day_comes_first(text)
    # A point between the parts is the European order; a slash without proof is read as month first.
    dotted = bool(text.str.contains(r"^\d{1,2}\.\d{1,2}\.").any())
    orders = (DAY_FIRST, MONTH_FIRST) if day_first or (day_first is None and dotted) else (MONTH_FIRST, DAY_FIRST)
    short = [date + clock for group in (*orders, NAMED_MONTH) for date in group for clock in CLOCKS]
    return [*ZONED, *YEAR_FIRST, *short]


def _dates_as_digits(text: pl.Series) -> bool:
    present = text.drop_nulls()
    return bool(len(present)) and bool(present.str.contains(r"^(19|20)\d\d(0[1-9]|1[0-2])([0-2]\d|3[01])$").all())


def _parse(text: pl.Series, time_format: str) -> pl.Series:
    if "%z" in time_format or "%#z" in time_format:
        moments = text.str.strptime(pl.Datetime("us", "UTC"), time_format, strict=False)
    elif "%H" in time_format or "%I" in time_format:
        moments = text.str.strptime(pl.Datetime("us"), time_format, strict=False)
    else:
        moments = text.str.strptime(pl.Date, time_format, strict=False).cast(pl.Datetime("us"))
    return moments.to_physical().cast(pl.Int64)


def _microseconds(values: pl.Series, origin: Origin) -> pl.Series:
    if values.dtype in (pl.Time, pl.Duration):
        raise DataError(f"{origin.name}: column '{values.name}' holds {values.dtype}, which is no moment in time.")
    return values.cast(pl.Datetime("us")).to_physical().cast(pl.Int64)
