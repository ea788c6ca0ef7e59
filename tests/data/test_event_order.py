from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from gmlfm import Dataset
from gmlfm.data.event_order import event_order, places_in_file
from gmlfm.data.forgetting import data_without
from tests.data.arbitrary import plain


def tied(ties: str, users: list[str], items: list[str], times: list[int | None] | None = None) -> Dataset:
    spec = {"user": "u", "item": "i", "repeats": "keep", "ties": ties, **({} if times is None else {"time": "t"})}
    table = pl.DataFrame({"u": users, "i": items, **({} if times is None else {"t": times})})
    return Dataset.from_tables(table, schema={"interactions": spec})


def test_equal_times_are_equal_under_strict_and_in_file_order_under_file() -> None:
    columns = list("aaaaa"), list("vwxyz"), [7, None, 7, 3, None]
    assert tied("strict", *columns).history_order.tolist() == [2, 0, 2, 1, 0]
    assert tied("file", *columns).history_order.tolist() == [3, 0, 4, 2, 1]


def test_without_times_nothing_is_history_under_strict_and_the_file_decides_else() -> None:
    columns = list("aab"), list("xyx")
    assert tied("strict", *columns).history_order.tolist() == [0, 0, 0]
    assert tied("file", *columns).history_order.tolist() == [0, 1, 2]
    assert tied("shuffle", *columns).history_order.tolist() == [0, 1, 2]


@pytest.mark.parametrize("times", [[2.5, None, 2.25, -1.0], [2**62 + 1, None, 2**62, -(2**62)]])
def test_times_of_any_size_keep_their_order(times: list[float | None]) -> None:
    data = plain([1, 1, 1, 1], [1, 2, 3, 4], times)  # type: ignore[arg-type]
    assert data.history_order.tolist() == [3, 0, 2, 1]


def test_a_shuffle_is_fair_and_the_same_every_time() -> None:
    n_users = 2_000
    users = [f"u{number // 3}" for number in range(3 * n_users)]
    data = tied("shuffle", users, ["x", "y", "z"] * n_users, [5] * (3 * n_users))
    order = data.history_order
    assert np.array_equal(np.sort(order), np.arange(3 * n_users))
    assert np.array_equal(order, tied("shuffle", users, ["x", "y", "z"] * n_users, [5] * (3 * n_users)).history_order)
    ranks = order.reshape(-1, 3).argsort(axis=1)
    counts = np.unique(ranks, axis=0, return_counts=True)[1]
    assert len(counts) == 6
    assert np.abs(counts - n_users / 6).max() < 5 * np.sqrt(n_users / 6)


def test_a_shuffle_keeps_to_the_times() -> None:
    rng = np.random.default_rng(0)
    times = rng.integers(4, size=200).tolist()
    data = tied("shuffle", [f"u{number % 7}" for number in range(200)], [f"i{number}" for number in range(200)], times)
    in_order = np.array(times)[np.argsort(data.history_order)]
    assert (np.diff(in_order) >= 0).all()
    assert data.history_order.tolist() != tied("file", ["u"] * 200, [f"i{n}" for n in range(200)], times).history_order.tolist()


def test_a_shuffle_of_others_stays_when_a_user_goes_and_when_rows_come() -> None:
    users, items = list("abcabcabcabc"), [str(number) for number in range(12)]

    def of_user(data: Dataset, user: str) -> list[str]:
        number = data.users.ids.to_list().index(user)
        rows = np.flatnonzero(data.user_numbers == number)
        rows = rows[np.argsort(data.history_order[rows])]
        return [data.items.ids[int(item)] for item in data.item_numbers[rows]]

    data = tied("shuffle", users, items, [1] * 12)
    without, _ = data_without(data, [0])
    assert [of_user(without, user) for user in "bc"] == [of_user(data, user) for user in "bc"]
    more = tied("shuffle", [*users, "a"], [*items, "12"], [1] * 13)
    assert [item for item in of_user(more, "a") if item != "12"] == of_user(data, "a")


def test_places_count_the_rows_of_both_tables() -> None:
    rows, others = places_in_file(3, np.array([0, 1, 1, 3]))
    assert rows.tolist() == [1, 4, 5]
    assert others.tolist() == [0, 2, 3, 6]
    rows, others = places_in_file(2, np.empty(0, np.int64))
    assert (rows.tolist(), others.tolist()) == ([0, 1], [])


def test_no_row_at_all_has_an_order() -> None:
    nobody, nothing = np.empty(0, np.int32), np.empty(0, np.int64)
    for ties in ("strict", "file", "shuffle"):
        order = event_order(ties, nobody, pl.Series(["a"]), pl.Series([], dtype=pl.Int64), nothing)  # type: ignore[arg-type]
        assert len(order) == 0
