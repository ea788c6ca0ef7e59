from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gmlfm import Dataset
from gmlfm.data.describe import describe
from gmlfm.data.suspicious_times import suspicious_times, tied_share

rows_of_shops = st.lists(
    st.tuples(
        st.integers(0, 3), st.integers(0, 4), st.none() | st.integers(0, 3), st.sampled_from(["buy", "see"]), st.booleans()
    ),
    max_size=20,
)


def shop(rows: list[tuple[Any, ...]], **spec: Any) -> Dataset:
    table = pl.DataFrame(
        rows, schema={"u": pl.Int64, "i": pl.Int64, "t": pl.Int64, "e": pl.String, "p": pl.Boolean}, orient="row"
    )
    table = table.with_columns(pl.col("p").cast(pl.Int64))
    interactions = {"user": "u", "item": "i", "time": "t", "event": "e", "targets": ["buy"], "positive": "p = 1", **spec}
    return Dataset.from_tables(table, schema={"interactions": interactions})


@given(rows_of_shops)
def test_the_tied_share_is_that_of_the_plain_loop(rows: list[tuple[Any, ...]]) -> None:
    rows = [*rows, (9, 9, 9, "buy", True)]
    data = shop(rows, repeats="keep")
    counting = [(user, time) for user, _, time, kind, is_positive in rows if kind == "see" or is_positive]
    positives = [(user, time) for user, _, time, kind, is_positive in rows if kind == "buy" and is_positive]
    tied = [pair for pair in positives if pair[1] is not None and counting.count(pair) > 1]
    assert tied_share(data) == pytest.approx(len(tied) / len(positives))
    assert describe(data).to_dict()["tied_rows"] == tied_share(data)


def test_without_times_there_is_no_share_and_no_suspicion() -> None:
    data = Dataset.from_tables(pl.DataFrame({"u": [1, 1], "i": [1, 2]}), schema={"interactions": {"user": "u", "item": "i"}})
    assert (tied_share(data), suspicious_times(data)) == (None, [])


def test_all_equal_times_are_no_history() -> None:
    rows = [(1, 1, 5, "buy", True), (1, 2, 5, "buy", True), (2, 1, 5, "buy", True)]
    only = "all times are equal: only the order of the file tells what came last."
    assert suspicious_times(shop(rows)) == [f"{only} No row is history of another (ties = strict)."]
    assert suspicious_times(shop(rows, ties="file")) == [only]


def test_a_row_without_any_time_is_no_suspicion() -> None:
    data = shop([(1, 1, None, "buy", True)])
    assert (tied_share(data), suspicious_times(data)) == (0.0, [])


def tied_rows(order: str, n_users: int = 40, ids: type = int) -> Dataset:
    """Each user's four rows at one time, and a later one; items of the tied rows ascend, descend or lie anyhow."""
    rng = np.random.default_rng(0)
    rows = []
    for user in range(n_users):
        items = np.sort(rng.choice(200, 4, replace=False))
        items = {"ascending": items, "descending": items[::-1], "random": rng.permutation(items)}[order]
        rows += [(user, str(item) if ids is int else f"{item:03d}x", 7 + user) for item in items] + [(user, "0", 1_000)]
    table = pl.DataFrame(rows, schema=["u", "i", "t"], orient="row")
    return Dataset.from_tables(table, schema={"interactions": {"user": "u", "item": "i", "time": "t", "repeats": "keep"}})


@pytest.mark.parametrize("ids", [int, str])
@pytest.mark.parametrize("order", ["ascending", "descending"])
def test_ties_in_order_of_the_item_are_warned_of(order: str, ids: type) -> None:
    (warning,) = suspicious_times(tied_rows(order, ids=ids))
    assert warning == (
        f"100% of 120 neighbouring rows of one user and time lie in {order} order of the item's id (by chance 50%): an accident "
        "of the file that a model of sequences would learn; ties = strict (the default) ignores it."
    )


def test_ties_in_any_order_or_too_few_are_not() -> None:
    assert suspicious_times(tied_rows("random")) == []
    assert suspicious_times(tied_rows("ascending", n_users=9)) == []
    assert suspicious_times(tied_rows("ascending", n_users=10)) != []


@pytest.mark.parametrize("unit", [1, 1_000, 10**6, 10**9])
def test_times_in_the_future_are_counted(unit: int) -> None:
    def future(*times: int) -> list[str]:
        return suspicious_times(shop([(row, row, time * unit, "buy", True) for row, time in enumerate(times)]))

    past = (1_500_000_000, 1_600_000_000, 1_650_000_000)
    assert future(*past) == []
    in_2096 = 3_976_214_400
    assert future(*past, in_2096) == [
        "1 interactions have a time in the future (the latest: 2096-01-01); they count as the latest rows."
    ]
    assert "3 interactions have a time in the future" in future(in_2096, in_2096 + 1, in_2096 + 2)[0]


@pytest.mark.parametrize("times", [[1, 2, 3], [2019, 2020, 2999], [20_200_101, 20_200_102, 29_990_101], [-5, 0, 10**18]])
def test_numbers_that_are_no_moments_are_never_in_the_future(times: list[int]) -> None:
    assert suspicious_times(shop([(row, row, time, "buy", True) for row, time in enumerate(times)])) == []


def test_dates_in_the_future_are_named_and_any_order_of_the_file_will_do() -> None:
    table = {"u": ["a", "b", "c"], "i": ["x", "y", "z"], "t": ["2021-05-01", "2019-01-02", "9999-12-31"]}
    data = Dataset.from_tables(table, schema={"interactions": {"user": "u", "item": "i", "time": "t"}})
    assert suspicious_times(data) == [
        "1 interactions have a time in the future (the latest: beyond the year 9000); they count as the latest rows."
    ]
    assert data.history_order.tolist() == [1, 0, 2]
