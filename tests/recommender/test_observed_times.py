from __future__ import annotations

import time
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from gmlfm.data.columns import Origin
from gmlfm.errors import DataError
from gmlfm.recommender.observed_times import times_on_the_scale

SECONDS = 1_700_000_000
UNITS = {"seconds": 1, "milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}
ORIGIN = Origin("the rows")


def _index(latest: float | None, time_format: str | None = None) -> Any:
    interactions = SimpleNamespace(time_format=time_format)
    run = SimpleNamespace(data=SimpleNamespace(schema=SimpleNamespace(interactions=interactions)))
    return SimpleNamespace(run=run, latest_time=latest)


def _times(values: list[Any], latest: float | None, time_format: str | None = None) -> list[Any]:
    return times_on_the_scale(pl.Series("time", values), _index(latest, time_format), ORIGIN).to_list()


@pytest.mark.parametrize("unit", UNITS)
def test_dates_are_put_on_the_scale_of_the_data(unit: str) -> None:
    latest = SECONDS * UNITS[unit]
    moment = int(datetime.fromisoformat("2023-11-14T10:30:00+00:00").timestamp()) * UNITS[unit]
    assert _times(["2023-11-14T10:30:00Z", None], latest) == [moment, None]
    assert _times([datetime(2023, 11, 14, 10, 30)], latest) == [moment]
    assert _times([latest + 1, None, 5], latest) == [latest + 1, None, 5]
    assert _times([str(latest)], latest) == [latest]


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("other", UNITS)
def test_a_number_of_another_unit_is_refused(unit: str, other: str) -> None:
    latest, value = SECONDS * UNITS[unit], (SECONDS - 7) * UNITS[other]
    if unit == other:
        assert _times([value], latest) == [value]
        return
    with pytest.raises(
        DataError, match=rf"row 2: column 'time' holds {value}, which are {other} since 1970, and .* are {unit} such"
    ):
        _times([latest, value], latest)


def test_times_that_are_no_moments_are_numbers_alone() -> None:
    assert _times([7, 900, None], 812) == [7, 900, None]
    assert _times([1_700_000_000], 812) == [1_700_000_000]
    with pytest.raises(DataError, match=r"row 2: column 'time' holds dates, and the data's times are numbers such as 812"):
        _times([None, "2026-01-01"], 812)


def test_without_times_in_the_data_any_scale_will_do() -> None:
    assert _times([5, None], None) == [5, None]
    assert _times(["1970-01-01 00:00:01"], None) == [1_000_000]
    assert _times([None, None], SECONDS) == [None, None]


@pytest.mark.parametrize("values", [["soon"], [True], [[1]], ["1", "2", "x"], [float("inf")], [b"1"]], ids=str)
def test_what_is_no_time_is_refused(values: list[Any]) -> None:
    with pytest.raises(DataError, match=r"'?time'?"):
        _times(values, SECONDS)


def test_the_advice_is_for_who_observes() -> None:
    with pytest.raises(DataError, match=r"holds 'soon' .*; give a number on the scale of the data's times or a date such as"):
        _times(["soon"], SECONDS)


def test_a_date_of_two_meanings_is_refused_unless_the_data_declare_its_format() -> None:
    with pytest.raises(
        DataError, match=r"dates such as '03/04/2019', whose day and month could be exchanged; write them as year"
    ):
        _times(["03/04/2019"], SECONDS)
    assert _times(["03/04/2019"], SECONDS, "%d/%m/%Y") == [int(datetime.fromisoformat("2019-04-03T00:00+00:00").timestamp())]
    assert _times(["2019-04-03"], SECONDS, "%d/%m/%Y") == _times(["03/04/2019"], SECONDS, "%d/%m/%Y")


def test_the_future_counts_and_is_noted() -> None:
    now = int(time.time())
    assert _times([now + 60], SECONDS) == [now + 60]  # clocks differ; warnings are errors here
    with pytest.warns(UserWarning, match=r"1 of the times are in the future, the latest \d+; until then these rows are"):
        assert _times([now, now + 10**6, None], SECONDS) == [now, now + 10**6, None]
    assert _times([10**15], 812) == [10**15]  # where nobody knows when that is
