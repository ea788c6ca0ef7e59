"""Times of observations on the scale of the data's times: a date is put on it, another scale is refused, not guessed."""

from __future__ import annotations

import time
import warnings
from typing import Any

import polars as pl

from gmlfm.data.columns import Origin
from gmlfm.data.times import ambiguous_date, as_times
from gmlfm.errors import DataError
from gmlfm.recommender.run_index import RunIndex

_REMEDY = "give a number on the scale of the data's times or a date such as 2026-01-31, or none where it is not known"
# How many of a unit make a second.
_UNITS = {"seconds": 1, "milliseconds": 1_000, "microseconds": 1_000_000, "nanoseconds": 1_000_000_000}
_MICROSECONDS = _UNITS["microseconds"]
_FIRST_MOMENT, _LAST_MOMENT = 1e8, 4.1e9  # seconds: 1973 to 2099, which no two units share
_DAY = 86_400


def times_on_the_scale(values: pl.Series, index: RunIndex, origin: Origin) -> pl.Series:
    """Numbers, missing where no time was given. Where the data have no times, the numbers themselves and dates in microseconds.

    Of data whose times are moments since 1970, the unit is told from the size of the latest one: dates are given in it, and
    numbers that are moments in another unit alone are refused.
    """
    times = _read(values, index, origin)
    latest = index.latest_time
    if latest is None or times.null_count() == len(times):
        return times
    unit = _unit_of(latest)
    if not _is_number(values):
        if unit is None:
            raise DataError(
                f"{_place(origin, times.is_not_null())}: column '{values.name}' holds dates, and the data's times are numbers "
                f"such as {latest}; give such numbers."
            )
        times = _in_unit(times, _UNITS[unit])
    elif unit is not None:
        _refuse_other_units(times, unit, latest, origin)
    if unit is not None:
        _warn_of_the_future(times, _UNITS[unit])
    return times


def _read(values: pl.Series, index: RunIndex, origin: Origin) -> pl.Series:
    """In the format that the data declare, or else as it looks."""
    declared = index.run.data.schema.interactions.time_format
    if declared is not None:
        try:
            return as_times(values, origin, declared)
        except DataError:
            pass
    example = ambiguous_date(values)
    if example is not None:
        raise DataError(
            f"{origin.name}: column '{values.name}' holds dates such as {example!r}, whose day and month could be exchanged; "
            "write them as year-month-day."
        )
    return as_times(values, origin, remedy=_REMEDY)


def _is_number(values: pl.Series) -> bool:
    """Whether as_times leaves the values as the numbers that they are."""
    if values.dtype != pl.String:
        return values.dtype.is_numeric()
    texts = values.str.strip_chars()
    numbers = texts.cast(pl.Float64, strict=False)
    return numbers.null_count() == texts.set(texts == "", None).null_count()


def _unit_of(moment: Any) -> str | None:
    return next((name for name, n in _UNITS.items() if _FIRST_MOMENT <= moment / n < _LAST_MOMENT), None)


def _in_unit(microseconds: pl.Series, per_second: int) -> pl.Series:
    if per_second >= _MICROSECONDS:
        return microseconds * (per_second // _MICROSECONDS)
    return microseconds // (_MICROSECONDS // per_second)


def _refuse_other_units(times: pl.Series, unit: str, latest: Any, origin: Origin) -> None:
    if all(_unit_of(extreme) == unit for extreme in (times.min(), times.max())):
        return
    for other, n in _UNITS.items():
        is_other = times.is_between(_FIRST_MOMENT * n, _LAST_MOMENT * n, closed="left").fill_null(False)
        if other != unit and is_other.any():
            place = int(is_other.arg_max() or 0)
            raise DataError(
                f"{_place(origin, is_other)}: column '{times.name}' holds {times[place]}, which are {other} since 1970, and "
                f"the data's times are {unit} such as {latest}; give {unit}, or a date such as 2026-01-31."
            )


def _warn_of_the_future(times: pl.Series, per_second: int) -> None:
    latest: Any = times.max()
    limit = (time.time() + _DAY) * per_second
    if latest > limit:
        n = int((times > limit).sum())
        message = f"{n:,} of the times are in the future, the latest {latest}; until then these rows are their users' latest."
        warnings.warn(message, stacklevel=6)


def _place(origin: Origin, is_wrong: pl.Series) -> str:
    return origin.locate(int(is_wrong.arg_max() or 0))
