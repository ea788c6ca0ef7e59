from __future__ import annotations

from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from polars.testing import assert_frame_equal

from gmlfm import Dataset
from gmlfm.data.interop import is_table
from gmlfm.errors import DataError
from tests.data.arbitrary import INTERACTIONS, ITEMS, USERS, build


@pytest.mark.parametrize(
    "make", [pd.DataFrame, pa.table, pl.DataFrame, pl.LazyFrame, dict], ids=["pandas", "arrow", "polars", "lazy", "dict"]
)
def test_every_maker_of_tables_gives_the_same_dataset(make: Any) -> None:
    data = build(interactions=make(INTERACTIONS), users=make(USERS), items=make(ITEMS))
    assert data.content_hash == build().content_hash
    assert_frame_equal(data.interactions, build().interactions)


@pytest.mark.parametrize(
    "make", [pd.DataFrame, pa.table, pl.DataFrame, pl.LazyFrame, dict], ids=["pandas", "arrow", "polars", "lazy", "dict"]
)
def test_a_table_is_known_as_one(make: Any) -> None:
    assert is_table(make(INTERACTIONS))


@pytest.mark.parametrize("value", ["bazaar", None, 3, [1], pl.Series("u", ["a"]), pd.Series(["a"]), build()])
def test_other_things_are_no_tables(value: Any) -> None:
    assert not is_table(value)


def test_pandas_floats_of_whole_numbers_are_still_integer_ids() -> None:
    table = pd.DataFrame({"u": [1, 2, None], "i": ["a", "b", "c"]})
    schema = {"interactions": {"user": "u", "item": "i", "read": {"tolerate": 1}}}
    data = Dataset.from_tables(table, schema=schema)
    assert (data.users.ids.to_list(), data.users.id_type) == (["1", "2"], "integer")
    assert "1 row(s) of the interactions, this the first, have no user or no item" in data.warnings[0]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (pl.Series("u", ["a"]), "is a Series; expected a polars"),
        (pd.Series(["a"]), "is a Series; expected a polars"),
        ({"u": [1, 2], "i": [1]}, "columns need one name and one length each"),
        (pd.DataFrame([[1, 2]], columns=["u", "u"]), "columns need one name and one length each"),
        ({"u": ["\ud800"], "i": [1]}, "interactions table holds a value that cannot be used"),
        (pd.DataFrame({"u": ["\ud800"], "i": [1]}, dtype=object), "interactions table holds a value that cannot be used"),
        ({"u": [10**5_000, "a"], "i": [1, 2]}, "interactions table holds a value that cannot be used"),
        ({"u": 5, "i": [1]}, "a column is 5; expected a list of values"),
    ],
)
def test_what_is_no_table_is_refused(table: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Dataset.from_tables(table, schema={"interactions": {"user": "u", "item": "i"}})


def test_pandas_dates_of_any_unit_and_odd_kinds() -> None:
    table = pd.DataFrame(
        {"u": ["a", "b"], "i": ["x", "y"], "t": pd.to_datetime(["2020-01-01", "2020-01-02"]).astype("datetime64[s]")}
    )
    table["p"] = pd.period_range("2020-01", periods=2, freq="M")
    data = Dataset.from_tables(
        table, schema={"interactions": {"user": "u", "item": "i", "time": "t", "context": {"p": "category"}}}
    )
    assert data.interactions["time"].to_list() == [1577836800000000, 1577923200000000]
    assert data.context["p"].to_list() == ["2020-01", "2020-02"]


def test_numbers_of_fifty_digits_are_ids_as_they_are_written() -> None:
    data = Dataset.from_tables({"u": [1, 10**50], "i": [2**70, 3]}, schema={"interactions": {"user": "u", "item": "i"}})
    assert sorted(data.users.ids) == ["1", str(10**50)]
    assert sorted(data.items.ids) == [str(2**70), "3"]
