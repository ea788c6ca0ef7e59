"""From when until when an item can be had."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from gmlfm.data.availability import Availability
from gmlfm.data.dataset import Dataset
from gmlfm.errors import DataError, SchemaError

SALES = pl.DataFrame({"u": ["a", "b", "a", "b", "c"], "i": ["v", "w", "x", "stocked", "stocked"], "t": [10, 20, 30, 40, 50]})
LISTINGS = pl.DataFrame({"i": ["v", "w", "x", "stocked", "unsold"], "since": [5, None, 30, 15, 25]})


def market(listings: pl.DataFrame = LISTINGS, **items: Any) -> Dataset:
    schema = {
        "interactions": {"user": "u", "item": "i", "time": "t"},
        "items": {"id": "i", "listed": "since", "sells_once": True, **items},
    }
    return Dataset.from_tables(SALES, items=listings, schema=schema)


def available(data: Dataset, row: int) -> set[str]:
    times = data.availability
    assert times is not None
    items = np.arange(len(data.items))
    is_available = times.is_available(items, np.full(len(items), times.row_times[row]))
    return set(data.items.ids.filter(pl.Series(is_available)).to_list())


def test_an_item_is_there_from_its_listing_to_its_sale() -> None:
    data = market()
    assert data.single_unit_items.tolist() == [True, True, True, False, True]
    assert available(data, 0) == {"v", "w"}  # w has no listing time: always there
    assert available(data, 1) == {"w", "stocked"}
    assert available(data, 2) == {"x", "stocked", "unsold"}  # listed in the moment of its sale
    assert available(data, 4) == {"stocked", "unsold"}


def test_without_listing_times_or_single_sales_there_is_none() -> None:
    assert market(sells_once=False).availability is None
    interactions = {"interactions": {"user": "u", "item": "i", "time": "t"}}
    assert Dataset.from_tables(SALES, schema=interactions).availability is None


def test_auto_asks_for_nine_in_ten_sold_items_with_one_row() -> None:
    def sells_once(items: list[int]) -> bool:
        table = pl.DataFrame({"u": list(range(len(items))), "i": items})
        return Dataset.from_tables(table, schema={"interactions": {"user": "u", "item": "i"}}).sells_once

    assert sells_once([*range(10), 9])
    assert not sells_once([*range(10), 8, 9])


def test_listing_times_on_another_scale_are_refused() -> None:
    times = pl.Series([10, 20, 30])
    with pytest.raises(DataError, match="are listed after their sale"):
        Availability.of(times, np.arange(3, dtype=np.int32), pl.Series([1000, 2000, None]), np.ones(3, bool))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("sells_once", "yes", 'expected true, false or "auto"'),
        ("listed_format", "%Y", "listed_format but no listed"),
        ("listed", "since", r"needs the times of \[interactions\]"),
    ],
)
def test_wrong_keys_are_refused(key: str, value: str, message: str) -> None:
    schema = {"interactions": {"user": "u", "item": "i"}, "items": {"id": "i", key: value}}
    with pytest.raises(SchemaError, match=message):
        Dataset.from_tables(SALES, items=LISTINGS, schema=schema)


def test_users_are_not_listed() -> None:
    schema = {"interactions": {"user": "u", "item": "i"}, "users": {"id": "u", "sells_once": True}}
    with pytest.raises(SchemaError, match="unknown key 'sells_once'"):
        Dataset.from_tables(SALES, users=pl.DataFrame({"u": ["a"]}), schema=schema)
