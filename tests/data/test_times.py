from __future__ import annotations

import datetime as dt

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gmlfm.data.columns import Origin
from gmlfm.data.times import ambiguity_warning, ambiguous_date, as_times, short_date
from gmlfm.errors import DataError

ORIGIN = Origin("events.csv")
MOMENT = dt.datetime(2019, 12, 31, 14, 5, tzinfo=dt.UTC)
MICROSECONDS = int(MOMENT.timestamp() * 1e6)
MIDNIGHT = int(MOMENT.replace(hour=0, minute=0).timestamp() * 1e6)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2019-12-31 14:05:00", MICROSECONDS),
        ("2019-12-31T14:05:00Z", MICROSECONDS),
        ("2019-12-31T15:05:00+01:00", MICROSECONDS),
        ("2019-12-31T14:05:00.250000", MICROSECONDS + 250_000),
        ("2019-12-31 14:05", MICROSECONDS),
        ("31.12.2019 14:05", MICROSECONDS),
        ("31/12/2019 14:05:00", MICROSECONDS),
        ("12/31/2019 14:05", MICROSECONDS),
        ("2019/12/31", MIDNIGHT),
        ("20191231", MIDNIGHT),
        ("31.12.2019", MIDNIGHT),
        ("31 Dec 2019", MIDNIGHT),
        ("December 31, 2019", MIDNIGHT),
    ],
)
def test_the_shapes_people_write(text: str, expected: int) -> None:
    assert as_times(pl.Series("t", [text, None]), ORIGIN).to_list() == [expected, None]


def test_several_shapes_in_one_column() -> None:
    mixed = pl.Series("t", ["2019-12-31", "31.12.2019", "12/31/2019 00:00", "20191231"])
    assert as_times(mixed, ORIGIN).to_list() == [MIDNIGHT] * 4


def test_the_whole_column_decides_whether_the_day_comes_first() -> None:
    day_first = pl.Series("t", ["03/04/2019", "25/04/2019"])
    assert ambiguous_date(day_first) is None
    assert dt.datetime.fromtimestamp(as_times(day_first, ORIGIN)[0] / 1e6, dt.UTC).month == 4
    month_first = pl.Series("t", ["03/04/2019", "04/25/2019"])
    assert ambiguous_date(month_first) is None
    assert dt.datetime.fromtimestamp(as_times(month_first, ORIGIN)[0] / 1e6, dt.UTC).month == 3
    assert ambiguous_date(pl.Series("t", ["03/04/2019"])) == "03/04/2019"
    assert as_times(pl.Series("t", ["03/04/2019"]), ORIGIN, "%d/%m/%Y")[0] == int(
        dt.datetime(2019, 4, 3, tzinfo=dt.UTC).timestamp() * 1e6
    )


def test_numbers_stay_numbers() -> None:
    assert as_times(pl.Series("t", ["978300760", "5"]), ORIGIN).to_list() == [978300760, 5]
    assert as_times(pl.Series("t", [1.5, float("nan")]), ORIGIN).to_list() == [1.5, None]
    assert as_times(pl.Series("t", [dt.date(2019, 12, 31)]), ORIGIN).to_list() == [MIDNIGHT]


def test_no_time_is_refused_with_its_place() -> None:
    with pytest.raises(
        DataError, match=r"events\.csv row 2: column 't' holds 'soon' where a date or a number was expected \(1 such rows\)"
    ):
        as_times(pl.Series("t", ["2019-12-31", "soon"]), ORIGIN)
    with pytest.raises(DataError, match="where a time like %Y was expected"):
        as_times(pl.Series("t", ["31.12.2019"]), ORIGIN, "%Y")


@given(st.lists(st.datetimes(dt.datetime(1950, 1, 1), dt.datetime(2100, 1, 1)), min_size=1, max_size=20))
def test_order_in_time_survives_any_shape_with_seconds(moments: list[dt.datetime]) -> None:
    seconds = [moment.replace(microsecond=0) for moment in moments]
    expected = [int(moment.replace(tzinfo=dt.UTC).timestamp()) * 1_000_000 for moment in seconds]
    for shape in ("%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%SZ", "%d.%m.%Y %H:%M:%S"):
        assert as_times(pl.Series("t", [moment.strftime(shape) for moment in seconds]), ORIGIN).to_list() == expected


def test_two_digit_years_are_years() -> None:
    short = as_times(pl.Series("t", ["03/04/19", "25/12/18", "05/01/19"]), ORIGIN)
    assert short.to_list() == as_times(pl.Series("t", ["2019-04-03", "2018-12-25", "2019-01-05"]), ORIGIN).to_list()
    assert as_times(pl.Series("t", ["31.12.19 14:05"]), ORIGIN).to_list() == [MICROSECONDS]


def test_a_column_that_proves_both_orders_is_refused() -> None:
    with pytest.raises(DataError, match="some dates with the day first and some with the month first"):
        as_times(pl.Series("t", ["25/12/2018", "12/25/2019"]), ORIGIN)


def test_what_is_no_number_is_missing_and_what_is_infinite_is_refused() -> None:
    assert as_times(pl.Series("t", ["5", "nan", "1"]), ORIGIN).to_list() == [5.0, None, 1.0]
    for values in (pl.Series("t", ["5", "1", "-inf"]), pl.Series("t", [5.0, None, float("inf")])):
        with pytest.raises(DataError, match=r"events\.csv row 3: the column 't' is infinite; give a finite number"):
            as_times(values, ORIGIN)


@pytest.mark.parametrize(
    ("texts", "example", "formats"),
    [
        (["2020-01-01", " 03/04/2019 ", None], "03/04/2019", ("%d/%m/%Y", "%m/%d/%Y")),
        (["03/03/2019", "3-4-19"], "3-4-19", ("%d-%m-%y", "%m-%d-%y")),
        (["03/04/2019 14:05"], "03/04/2019 14:05", ("%d/%m/%Y %H:%M", "%m/%d/%Y %H:%M")),
        (["03/04/19 14:05:09"], "03/04/19 14:05:09", ("%d/%m/%y %H:%M:%S", "%m/%d/%y %H:%M:%S")),
        (["03/04/19 14:05:09.5"], "03/04/19 14:05:09.5", ("%d/%m/%y %H:%M:%S%.f", "%m/%d/%y %H:%M:%S%.f")),
    ],
)
def test_dates_that_could_be_read_in_two_ways_are_warned_of(
    texts: list[str | None], example: str, formats: tuple[str, str]
) -> None:
    column = pl.Series("t", texts)
    warning = ambiguity_warning(column, ORIGIN, "[interactions] time_format")
    assert warning == (
        f"events.csv: column 't' holds dates such as '{example}', whose day and month could be exchanged; they are read with the "
        f'month first: set [interactions] time_format = "{formats[0]}" where the day comes first, "{formats[1]}" where the month does.'
    )
    day_first, month_first = (as_times(pl.Series("t", [example]), ORIGIN, shape)[0] for shape in formats)
    assert day_first != month_first == as_times(pl.Series("t", [example]), ORIGIN)[0]


@pytest.mark.parametrize(
    "values", [["2019-03-04"], ["03.04.2019"], ["03/03/2019"], ["03/04/2019", "13/04/2019"], ["5", "6"], [5, 6], [None]]
)
def test_dates_that_are_read_in_one_way_are_not(values: list[object]) -> None:
    assert ambiguity_warning(pl.Series("t", values), ORIGIN, "time_format") is None


def test_short_dates_are_those_whose_order_only_a_column_can_tell() -> None:
    assert short_date(pl.Series("t", [None, "2019-03-04", "13/04/19"])) == "13/04/19"
    assert short_date(pl.Series("t", ["2019-03-04", "13.04.2019"])) is None
    assert short_date(pl.Series("t", [5])) is None


def test_among_numbers_the_text_is_the_wrong_one() -> None:
    with pytest.raises(DataError, match=r"row 3: column 't' holds 'x' where a number was expected \(1 such rows\)"):
        as_times(pl.Series("t", ["0", "1", "x", "3"]), ORIGIN)


def test_kinds_that_are_no_time_and_formats_that_cannot_be() -> None:
    for values in (pl.Series("t", [[1]]), pl.Series("t", [dt.timedelta(1)]), pl.Series("t", [b"x"])):
        with pytest.raises(DataError, match="which is no moment in time"):
            as_times(values, ORIGIN)
    with pytest.raises(DataError):
        as_times(pl.Series("t", ["2020-01-01 05"]), ORIGIN, "%Y-%m-%d %H")
    assert as_times(pl.Series("t", [2**63 + 5], dtype=pl.UInt64), ORIGIN).to_list() == [float(2**63)]


@pytest.mark.parametrize("dtype", [pl.Int128, pl.UInt64, pl.Int64, pl.Int8])
def test_numbers_beyond_64_bits_are_floats(dtype: type[pl.DataType]) -> None:
    small = as_times(pl.Series("t", [1, None, 7], dtype=dtype), Origin("t"))
    assert (small.dtype, small.to_list()) == (pl.Int64, [1, None, 7])
    if dtype in (pl.Int128, pl.UInt64):
        large = as_times(pl.Series("t", [1, None, 2**63 + 1], dtype=dtype), Origin("t"))
        assert (large.dtype, large.to_list()) == (pl.Float64, [1.0, None, 2.0**63])
