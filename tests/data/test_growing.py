from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gmlfm import Dataset
from gmlfm.data.growing import GrownData, grown_data
from gmlfm.errors import DataError

SCHEMA: dict[str, Any] = {
    "interactions": {"user": "user", "item": "item", "time": "time"},
    "users": {"id": "user", "fields": {"city": "category"}},
    "items": {"id": "item", "title": "name", "fields": {"tags": {"kind": "set"}, "price": "number"}},
}
COLUMNS = ["user", "item", "time"]
Row = tuple[str, str, int]


def plain(rows: list[Row], **spec: Any) -> Dataset:
    """Without tables of users and items."""
    schema = {"interactions": {**SCHEMA["interactions"], **spec}}
    return Dataset.from_tables(pl.DataFrame(rows, schema=COLUMNS, orient="row"), schema=schema)


def described(rows: list[Row], users: dict[str, str | None], items: dict[str, Any]) -> Dataset:
    """items: by id a name, tags and a price."""
    columns = {name: [values[place] for values in items.values()] for place, name in enumerate(("name", "tags", "price"))}
    return Dataset.from_tables(
        pl.DataFrame(rows, schema=COLUMNS, orient="row"),
        pl.DataFrame({"user": list(users), "city": pl.Series(list(users.values()), dtype=pl.String)}),
        pl.DataFrame({"item": list(items), **columns}),
        schema=SCHEMA,
    )


def named(data: Dataset, rows: pl.DataFrame) -> list[Row]:
    users, items = data.users.ids, data.items.ids
    return [(users[user], items[item], time) for user, item, time in rows.select("user", "item", "time").rows()]


def events(data: Dataset) -> Counter[Row]:
    """All that counts as history, targets or not."""
    return Counter(named(data, data.interactions) + (named(data, data.history_rows) if data.history_rows.height else []))


def test_rows_are_new_that_differ_in_user_item_or_time() -> None:
    old = plain([("u1", "i1", 1), ("u2", "i1", 2)], repeats="keep")
    more = plain([("u2", "i1", 2), ("u2", "i1", 3), ("u3", "i1", 2), ("u1", "i9", 1), ("u1", "i1", 1)], repeats="keep")
    grown = grown_data(old, more)
    assert named(grown.data, grown.data.interactions[grown.rows]) == [("u2", "i1", 3), ("u3", "i1", 2), ("u1", "i9", 1)]
    assert grown.data.users.ids.to_list() == ["u1", "u2", "u3"]
    assert grown.n_new == 3
    assert grown_data(grown.data, more).n_new == 0


def test_the_numbers_of_old_users_items_and_rows_stay() -> None:
    old, more = plain([("b", "y", 1), ("c", "z", 2)]), plain([("a", "x", 3), ("c", "x", 4)])
    grown = grown_data(old, more).data
    assert grown.interactions.head(2).equals(old.interactions)
    assert grown.users.ids.to_list() == ["b", "c", "a"]
    assert grown.items.ids.to_list() == ["y", "z", "x"]


def test_a_merged_pair_keeps_its_row_and_its_new_row_is_history() -> None:
    old, more = plain([("u1", "i1", 1), ("u1", "i2", 2)]), plain([("u1", "i1", 5), ("u1", "i3", 6), ("u1", "i3", 7)])
    grown = grown_data(old, more)
    assert named(grown.data, grown.data.interactions) == [("u1", "i1", 1), ("u1", "i2", 2), ("u1", "i3", 7)]
    assert grown.data.history_rows.to_dicts() == [
        {"user": 0, "item": 0, "before": 2, "is_had": True, "time": 5},
        {"user": 0, "item": 2, "before": 2, "is_had": True, "time": 6},
    ]
    assert (grown.n_history, grown.n_repeats) == (2, 1)
    assert grown_data(grown.data, more).n_new == 0


rows_of_few = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xyz"), st.integers(0, 4)), min_size=1, max_size=15)


@given(rows_of_few, rows_of_few, st.sampled_from(["merge", "keep"]))
def test_all_events_are_held_once_however_the_data_overlap(old: list[Row], more: list[Row], repeats: str) -> None:
    before, other = plain(old, repeats=repeats), plain(more, repeats=repeats)
    grown = grown_data(before, other)
    assert set(events(grown.data)) == set(old) | set(more)
    new = Counter({row: n for row, n in Counter(more).items() if row not in old})
    assert events(grown.data) == events(before) + new
    assert grown.data.interactions.head(before.n_interactions).equals(before.interactions)
    if repeats == "merge":
        pairs = [row[:2] for row in named(grown.data, grown.data.interactions)]
        assert len(set(pairs)) == len(pairs)
    places = grown.data.history_rows["before"].to_list()
    assert places == sorted(places)


def test_times_with_decimals_come_to_whole_ones() -> None:
    old = plain([("u1", "i1", 1), ("u1", "i1", 2), ("u1", "i2", 3)])
    table = pl.DataFrame([("u1", "i3", 2.5), ("u2", "i1", 1.5)], schema=COLUMNS, orient="row")
    more = Dataset.from_tables(table, schema={"interactions": SCHEMA["interactions"]})
    for before, other in ((old, more), (more, old)):
        grown = grown_data(before, other).data
        assert grown.interactions["time"].dtype == grown.history_rows["time"].dtype == pl.Float64
        assert len(np.unique([*grown.history_order, *grown.history_rows_order])) == 5


def test_attributes_of_new_ones_come_and_of_known_ones_what_is_missing() -> None:
    old = described([("u1", "i1", 1), ("u2", "i2", 1)], {"u1": "Oslo", "u2": None}, {"i1": ("One", ["a"], 1.0)})
    more = described(
        [("u3", "i3", 2)], {"u1": "Rome", "u2": "Bern", "u3": "Kyiv"}, {"i2": ("Two", [], 2.0), "i3": (None, ["b"], None)}
    )
    grown = grown_data(old, more).data
    assert grown.users.fields["city"].to_list() == ["Oslo", "Bern", "Kyiv"]
    assert grown.items.fields.to_dicts() == [
        {"tags": ["a"], "price": 1.0},
        {"tags": [], "price": 2.0},
        {"tags": ["b"], "price": None},
    ]
    assert grown.items.titles is not None
    assert grown.items.titles.to_list() == ["One", "Two", None]


def test_events_of_another_kind_stay_history_alone() -> None:
    spec = {"event": "event", "targets": ["buy"], "history_events": ["buy", "view"]}
    schema = {"interactions": {**SCHEMA["interactions"], **spec}}

    def of_kinds(rows: list[tuple[str, str, int, str]]) -> Dataset:
        return Dataset.from_tables(pl.DataFrame(rows, schema=[*COLUMNS, "event"], orient="row"), schema=schema)

    old = of_kinds([("u1", "i1", 1, "view"), ("u1", "i1", 1, "buy")])
    grown = grown_data(old, of_kinds([("u1", "i1", 1, "view"), ("u1", "i2", 2, "view"), ("u2", "i1", 2, "buy")]))
    assert (len(grown.rows), grown.n_history) == (1, 1)
    assert named(grown.data, grown.data.history_rows) == [("u1", "i1", 1), ("u1", "i2", 2)]


def test_the_context_comes_with_the_rows() -> None:
    schema = {"interactions": {**SCHEMA["interactions"], "context": {"on": {"kind": "set"}}}}

    def of_days(rows: list[tuple[str, str, int, list[str]]]) -> Dataset:
        return Dataset.from_tables(pl.DataFrame(rows, schema=[*COLUMNS, "on"], orient="row"), schema=schema)

    old = of_days([("u1", "i1", 1, ["mon"])])
    grown: GrownData = grown_data(
        old, of_days([("u1", "i1", 2, ["mon"]), ("u1", "i1", 3, ["tue", "web"]), ("u2", "i1", 1, [])])
    )
    assert grown.data.context["on"].to_list() == [["mon"], ["tue", "web"], []]
    assert grown.n_history == 1


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"repeats": "keep"}, "repeats = merge, but these data have repeats = keep"),
        ({"ties": "file"}, "ties = strict, but these data have ties = file"),
        ({"context": {"time": "number"}}, r"the context fields \(none\), but these data have time \(number\)"),
    ],
)
def test_data_of_another_schema_are_refused(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        grown_data(plain([("u1", "i1", 1)]), plain([("u1", "i1", 2)], **spec))


def test_missing_times_are_the_same_as_each_other() -> None:
    frame = pl.DataFrame({"user": ["u", "u"], "item": ["i", "j"], "time": [None, 1.0]})
    old = Dataset.from_tables(frame, schema={"interactions": SCHEMA["interactions"]})
    assert grown_data(old, old).n_new == 0
