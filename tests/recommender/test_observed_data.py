from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from gmlfm import Dataset, Recommender
from gmlfm.data.growing import grown_data
from gmlfm.recommender.observed import Observed
from gmlfm.recommender.observed_data import observed_data, part_of
from gmlfm.recommender.observing import new_rows
from gmlfm.recommender.run_index import RunIndex
from gmlfm.runs.event_lines import ObservedRow

OLD = [(n % 4, f"i{n % 5}", 10 + n, "buy") for n in range(20)]


def index_of(**spec: Any) -> RunIndex:
    table = pl.DataFrame(OLD, schema=["user", "item", "time", "event"], orient="row").with_columns(stars=pl.lit(3.0))
    schema = {"interactions": {"user": "user", "item": "item", "time": "time", **spec}}
    return RunIndex(Recommender("popularity").fit(Dataset.from_tables(table, schema=schema), split="none").fitted)


def named(data: Dataset, rows: pl.DataFrame) -> list[tuple[Any, ...]]:
    return [
        (data.users.ids[user], data.items.ids[item], time) for user, item, time in rows.select("user", "item", "time").rows()
    ]


def test_a_row_without_a_time_comes_right_after_its_users_latest() -> None:
    index = index_of(repeats="keep")
    rows: list[ObservedRow] = [
        ("1", "i0", None, None),
        ("1", "i1", 90, None),
        ("1", "i2", None, None),
        ("new", "i0", None, None),
        ("3", "i0", 5, None),
        ("3", "i4", None, None),
    ]
    data = observed_data(index, rows)
    assert [time for _, _, time in named(data, data.interactions)] == [27 + 1, 90, 91, 30, 5, 30]
    assert data.users.id_type == "text"
    assert observed_data(index, rows[:3]).users.id_type == "integer"
    grown_data(index.run.data, data)


def test_kinds_decide_what_is_a_target_and_what_is_history() -> None:
    spec = {"event": "event", "targets": ["buy"], "history_events": ["buy", "view"], "repeats": "keep"}
    table = pl.DataFrame([*OLD, (1, "i1", 50, "view")], schema=["user", "item", "time", "event"], orient="row")
    schema = {"interactions": {"user": "user", "item": "item", "time": "time", **spec}}
    index = RunIndex(Recommender("popularity").fit(Dataset.from_tables(table, schema=schema), split="none").fitted)
    kinds = ("buy", "view", "hover", None)
    data = observed_data(index, [("1", f"i{n}", 60 + n, kind) for n, kind in enumerate(kinds)])
    assert named(data, data.interactions) == [("1", "i0", 60), ("1", "i3", 63)]
    assert named(data, data.history_rows) == [("1", "i1", 61)]
    alone = observed_data(index, [("1", "i2", 70, "view")])
    assert (alone.n_interactions, alone.history_rows.height) == (0, 1)
    assert grown_data(index.run.data, alone).n_history == 1


def test_events_and_merged_repeats_of_the_data_count_as_theirs() -> None:
    spec = {"event": "event", "targets": ["buy"], "history_events": ["buy", "view"]}
    more = [(1, "i1", 40, "buy"), (1, "i1", 50, "view")]
    table = pl.DataFrame([*OLD, *more], schema=["user", "item", "time", "event"], orient="row")
    schema = {"interactions": {"user": "user", "item": "item", "time": "time", **spec}}
    run = Recommender("popularity").fit(Dataset.from_tables(table, schema=schema), split="none")
    index = RunIndex(run.fitted)
    assert index.latest_time == 50
    assert {(1, 11, True), (1, 40, True), (1, 50, False)} <= index.timed_rows(1)
    assert all(time != 50 for _, time, _ in index.timed_rows(0))
    data = observed_data(index, [("1", "i0", None, None), ("new", "i0", None, None)])
    assert [time for _, _, time in named(data, data.interactions)] == [51, 51]
    rows: list[ObservedRow] = [
        ("1", "i1", 11, "buy"),
        ("1", "i1", 50, "view"),
        ("1", "i1", 50, None),
        ("1", "i1", 50, "buy"),
        ("1", "i1", 40, "view"),
    ]
    fresh, report = new_rows(index, Observed(index), rows)
    assert fresh == rows[3:]
    assert report.n_duplicates == 3
    assert part_of(run.fitted.data, run.fitted.data, rows) == rows[:3]


def test_where_no_row_has_a_time_observations_begin_at_zero() -> None:
    table = pl.DataFrame(OLD, schema=["user", "item", "time", "event"], orient="row")
    table = table.with_columns(time=pl.lit(None, pl.Int64))
    schema = {"interactions": {"user": "user", "item": "item", "time": "time", "ties": "file"}}
    run = Recommender("popularity").fit(Dataset.from_tables(table, schema=schema), split="none")
    data = observed_data(RunIndex(run.fitted), [("1", "i0", None, None), ("1", "i3", None, None), ("new", "i0", None, None)])
    assert [time for _, _, time in named(data, data.interactions)] == [1, 2, 1]


def test_repeats_are_merged_as_the_data_have_it_and_other_columns_are_missing() -> None:
    index = index_of(label="stars", context={"event": "category"})
    rows: list[ObservedRow] = [("9", "i0", 60, None), ("9", "i0", 61, None), ("9", "i1", 62, None)]
    data = observed_data(index, rows)
    assert named(data, data.interactions) == [("9", "i0", 61), ("9", "i1", 62)]
    assert named(data, data.history_rows) == [("9", "i0", 60)]
    assert data.interactions["label"].null_count() == data.context["event"].null_count() == 2
    grown = grown_data(index.run.data, data)
    assert (len(grown.rows), grown.n_history) == (2, 1)


@pytest.mark.parametrize("repeats", ["merge", "keep"])
def test_what_the_data_have_now_is_part_of_them(repeats: str) -> None:
    before = index_of(repeats=repeats).run.data
    table = pl.DataFrame([(1, "i1", 95), (1, "i4", 96)], schema=["user", "item", "time"], orient="row")
    more = Dataset.from_tables(
        table, schema={"interactions": {"user": "user", "item": "item", "time": "time", "repeats": repeats}}
    )
    grown = grown_data(before, more).data
    rows: list[ObservedRow] = [
        ("1", "i1", 95, None),
        ("1", "i1", 94, None),
        ("1", "i4", None, "buy"),
        ("1", "i3", None, None),
        ("2", "i1", 95, None),
        ("1", "i1", 11, None),
    ]
    assert part_of(grown, before, rows) == [rows[0], rows[2], rows[5]]
    assert part_of(grown, before, []) == []
