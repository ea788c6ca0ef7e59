"""Histories against a loop over all rows; a History is some lists of items."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gmlfm import Dataset
from gmlfm.data.histories import Histories, History, gathered, grid, is_ordered, ranges, visible_rows, without
from gmlfm.data.splits import make_split
from tests.data.slow_history import slow_history

KINDS = ("click", "buy")


def table(rows: list[dict[str, Any]], **changes: Any) -> Dataset:
    """Of rows with user, item, kind and perhaps time; a column that is all missing is left out."""
    spec: dict[str, Any] = {"user": "user", "item": "item", **changes}
    frame = pl.DataFrame(
        rows, schema={"user": pl.String, "item": pl.String, "time": pl.Int64, "kind": pl.String, "hour": pl.String}
    )
    if "time" not in spec:
        frame = frame.drop("time")
    return Dataset.from_tables(frame, schema={"interactions": spec})


def of_row(histories: Histories, row: int) -> list[int]:
    return histories.before(np.array([row])).of_user(0).tolist()


def row_of(user: int, item: int, time: int | None, kind: str = "buy", hour: str = "0") -> dict[str, Any]:
    return {"user": f"u{user}", "item": f"i{item}", "time": time, "kind": kind, "hour": hour, "stars": None}


ROWS = st.lists(
    st.builds(
        row_of,
        st.integers(0, 2),
        st.integers(0, 4),
        st.one_of(st.none(), st.integers(0, 5)),
        st.sampled_from(KINDS),
    ),
    min_size=3,
    max_size=14,
)
CHANGES = st.fixed_dictionaries(
    {"repeats": st.sampled_from(["merge", "keep"]), "ties": st.sampled_from(["strict", "file"])},
    optional={
        "event": st.just("kind"),
        "targets": st.just(["buy"]),
        "history_events": st.sampled_from([["click"], ["click", "buy"]]),
    },
)


@given(ROWS, CHANGES, st.integers(0, 10**6))
def test_a_history_is_what_a_loop_over_all_rows_finds(rows: list[dict[str, Any]], changes: dict[str, Any], seed: int) -> None:
    kinds = {row["kind"] for row in rows}
    if "event" not in changes:
        changes = {key: value for key, value in changes.items() if key not in ("targets", "history_events")}
    elif not {*changes.get("targets", ()), *changes.get("history_events", ())} <= kinds or "targets" not in changes:
        return
    spec = {**changes, "time": "time"}
    if changes["ties"] == "strict" and len({row["time"] for row in rows}) < 2:
        return  # nothing is known to come before anything, of which another test tells
    data = table(rows, **spec)
    slow = slow_history(rows, spec, None)
    rng = np.random.default_rng(seed)
    visible = np.flatnonzero(rng.random(data.n_interactions) < 0.7)
    histories = Histories.of(data, visible)
    names = data.items.ids.to_list()

    def moment(place: int) -> tuple[float, int]:
        time = rows[place]["time"]
        return (float("-inf") if time is None else time, place if changes["ties"] == "file" else 0)

    events = [slow.targets[row] for row in visible if slow.counts[row]] + [place for place, _ in slow.alone]
    for row, place in enumerate(slow.targets):
        earlier = [
            other
            for other in sorted(events, key=lambda other: (moment(other)[0], other))
            if rows[other]["user"] == rows[place]["user"]
            and moment(other) < moment(place)
            and not (changes["repeats"] == "merge" and rows[other]["item"] == rows[place]["item"])
        ]
        # Events of one time may stand in any order of the file's rows; which is the latest is told by their place in it.
        expected = [rows[other]["item"] for other in earlier]
        items = [names[item] for item in of_row(histories, row)]
        if changes["ties"] == "file":
            assert items == expected
        assert sorted(items) == sorted(expected)


def test_rows_of_one_time_are_no_history_of_each_other_unless_the_file_or_a_draw_orders_them() -> None:
    rows = [row_of(0, item, time) for item, time in ((0, 1), (1, 2), (2, 2), (3, 3))]
    strict = Histories.of(table(rows, time="time"))
    assert [of_row(strict, row) for row in range(4)] == [[], [0], [0], [0, 1, 2]]
    file = Histories.of(table(rows, time="time", ties="file"))
    assert [of_row(file, row) for row in range(4)] == [[], [0], [0, 1], [0, 1, 2]]
    shuffle = Histories.of(table(rows, time="time", ties="shuffle"))
    assert sorted(map(tuple, (of_row(shuffle, 1), of_row(shuffle, 2)))) in ([(0,), (0, 1)], [(0,), (0, 2)])
    assert [sorted(of_row(shuffle, row)) for row in (0, 3)] == [[], [0, 1, 2]]


def test_shuffled_rows_of_one_time_stand_in_either_order() -> None:
    rows = [row_of(user, item, 1) for user in range(40) for item in range(2)]
    histories = Histories.of(table(rows, time="time", ties="shuffle"))
    n_first = sum(of_row(histories, 2 * user) == [] for user in range(40))
    assert 8 < n_first < 32
    assert all(len(of_row(histories, 2 * user)) + len(of_row(histories, 2 * user + 1)) == 1 for user in range(40))


def test_a_row_without_a_time_is_earliest() -> None:
    histories = Histories.of(table([row_of(0, 0, 5), row_of(0, 1, None), row_of(0, 2, None)], time="time"))
    assert sorted(of_row(histories, 0)) == [1, 2]
    assert of_row(histories, 1) == of_row(histories, 2) == []


def test_merged_repeats_are_history_of_other_rows_but_not_of_their_own_pair() -> None:
    rows = [row_of(0, 0, 1), row_of(0, 1, 2), row_of(0, 0, 3), row_of(0, 2, 4)]
    data = table(rows, time="time")
    names, items = data.items.ids.to_list(), data.item_numbers
    histories = Histories.of(data)
    by_item = {names[items[row]]: [names[item] for item in of_row(histories, row)] for row in range(data.n_interactions)}
    assert by_item == {"i1": ["i0"], "i0": ["i1"], "i2": ["i0", "i1", "i0"]}
    assert histories.is_had.all()


def test_a_merged_repeat_of_a_held_out_pair_is_history_but_not_told_as_had() -> None:
    rows = [row_of(0, 0, 1), row_of(0, 1, 2), row_of(0, 0, 3), row_of(0, 2, 4), row_of(1, 0, 1)]
    data = table(rows, time="time")
    names, items = data.items.ids.to_list(), data.item_numbers
    kept = next(row for row in range(4) if names[items[row]] == "i0" and data.user_numbers[row] == 0)
    held_out = Histories.of(data, np.setdiff1d(np.arange(data.n_interactions), [kept]))
    last = next(row for row in range(4) if names[items[row]] == "i2")
    assert [names[item] for item in of_row(held_out, last)] == ["i0", "i1"]
    assert held_out.is_had.tolist() == [False, True, True, True]
    assert Histories.of(data, np.arange(data.n_interactions)).is_had.all()


def test_what_was_had_has_targets_that_are_no_history() -> None:
    rows = [row_of(0, 0, 1), row_of(0, 1, 2, kind="click"), row_of(0, 2, 3)]
    data = table(rows, time="time", event="kind", targets=["buy"], history_events=["click"])
    visible = np.arange(data.n_interactions)
    had = Histories.had(data, visible)
    assert had is not None
    assert [data.items.ids[int(item)] for item in had.items] == ["i0", "i1", "i2"]
    assert had.is_had.tolist() == [True, False, True]
    assert len(Histories.of(data, visible).items) == 1
    every = table(rows, time="time", event="kind", targets=["buy"], history_events=["click", "buy"])
    assert Histories.had(every, visible) is None


def test_kept_repeats_are_history_of_themselves_and_nothing_counts_as_had() -> None:
    rows = [row_of(0, 0, 1), row_of(0, 1, 2), row_of(0, 0, 3)]
    histories = Histories.of(table(rows, time="time", repeats="keep"))
    assert of_row(histories, 2) == [0, 1]
    assert not histories.is_had.any()


def test_a_pair_in_another_context_is_no_history_of_itself() -> None:
    rows = [row_of(0, 0, 1, hour="day"), row_of(0, 1, 2), row_of(0, 0, 3, hour="night")]
    data = table(rows, time="time", context={"hour": "category"})
    assert data.n_interactions == 3
    histories = Histories.of(data)
    assert of_row(histories, 2) == [1]
    assert of_row(histories, 1) == [0]


def test_without_times_all_other_rows_are_history_and_the_order_is_unknown() -> None:
    data = table([row_of(0, 0, None), row_of(0, 1, None), row_of(0, 2, None), row_of(1, 0, None)])
    assert not is_ordered(data)
    assert [sorted(of_row(Histories.of(data), row)) for row in range(4)] == [[1, 2], [0, 2], [0, 1], []]


@pytest.mark.parametrize(
    ("times", "ties", "expected"),
    [((1, 2), "strict", True), ((7, 7), "strict", False), ((None, None), "strict", False), ((7, 7), "file", True)],
)
def test_an_order_is_known_where_times_differ_or_the_file_gives_it(times: Any, ties: str, expected: bool) -> None:
    rows = [row_of(0, item, time) for item, time in enumerate(times)]
    assert is_ordered(table(rows, time="time", ties=ties)) is expected


SPLITS = ("leave-one-out", "global-time", "random", "newcomers", "none")


@pytest.mark.parametrize("name", SPLITS)
def test_a_part_sees_the_parts_before_it(name: str) -> None:
    rng = np.random.default_rng(0)
    rows = [row_of(user, int(item), int(rng.integers(0, 90))) for user in range(30) for item in rng.permutation(25)[:12]]
    split = make_split(table(rows, time="time"), name, seed=0)
    parts = {"train": split.train, "validation": split.validation, "test": split.test, "unused": split.unused}

    def seen_by(part: str) -> set[str]:
        visible = visible_rows(split, part)
        assert (np.diff(visible) > 0).all()
        seen = {other for other, rows in parts.items() if len(rows) and np.isin(rows, visible).all()}
        assert sum(len(parts[other]) for other in seen) == len(visible)
        return seen

    by_time = name == "global-time"
    present = {part for part, rows in parts.items() if len(rows)}
    assert seen_by("train") == {"train"}
    assert seen_by("validation") == ({"train", "unused"} | ({"validation"} if by_time else set())) & present
    assert seen_by("test") == ({"train", "unused", "validation"} | ({"test"} if by_time else set())) & present


def test_other_data_see_their_own_earlier_rows_and_those_of_the_run() -> None:
    run = table([row_of(0, 0, 1), row_of(0, 1, 5), row_of(1, 2, 2)], time="time")
    other = table([row_of(0, 3, 4), row_of(0, 4, 6), row_of(9, 1, 7), row_of(9, 0, 8)], time="time")
    names = [*run.items.ids.to_list(), "i3", "i4"]
    as_run = {name: number for number, name in enumerate(names)}
    items = [as_run[other.items.ids[int(item)]] for item in other.item_numbers]
    side = replace(other.items, ids=pl.Series("item", names), n_listed=0)
    merged = replace(other, items=side, interactions=other.interactions.with_columns(pl.Series("item", items, pl.Int32())))
    numbers = np.array([run.users.ids.to_list().index(user) if user in run.users.ids else -1 for user in other.users.ids])
    histories = Histories.of_other(run, merged, numbers)
    assert [[names[item] for item in of_row(histories, row)] for row in range(4)] == [["i0"], ["i0", "i3", "i1"], [], ["i1"]]
    itself = Histories.of_other(run, run, np.arange(2))
    assert [of_row(itself, row) for row in range(3)] == [[], [0], []]  # what both have counts once
    untimed = replace(merged, interactions=merged.interactions.drop("time"))
    assert [sorted(of_row(Histories.of_other(run, untimed, numbers), row)) for row in range(4)] == [[0, 1], [0, 1], [], []]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"ties": "file"},
        {"repeats": "keep"},
        {"event": "kind", "targets": ["buy"], "history_events": ["click", "buy"]},
        {"event": "kind", "targets": ["buy"], "history_events": ["click"]},
    ],
)
def test_rows_that_both_data_have_count_once(changes: dict[str, Any]) -> None:
    rng = np.random.default_rng(1)
    rows = [
        row_of(int(user), int(item), time, KINDS[kind])
        for time, (user, item, kind) in enumerate(zip(*rng.integers(0, (3, 6, 2), (40, 3)).T, strict=True))
    ]
    data = table(rows, time="time", **changes)
    histories, itself = Histories.of(data), Histories.of_other(data, data, np.arange(len(data.users)))
    for row in range(data.n_interactions):
        own = int(data.item_numbers[row])
        expected = [item for item in of_row(histories, row) if changes.get("repeats") == "keep" or item != own]
        assert of_row(itself, row) == expected


def test_other_data_may_have_times_of_another_kind() -> None:
    run = table([row_of(0, 0, 1), row_of(0, 0, 2), row_of(0, 1, 3)], time="time")
    times = run.interactions["time"].cast(pl.Float64) + 0.5
    later = replace(run, interactions=run.interactions.with_columns(times), history_rows=run.history_rows.clear())
    histories = Histories.of_other(run, later, np.arange(1))
    names = run.items.ids.to_list()
    assert [names[item] for item in of_row(histories, 1)] == ["i0", "i0", "i0"]


def test_all_that_users_did_and_nothing_of_a_user_who_is_unknown() -> None:
    histories = Histories.of(table([row_of(0, 1, 2), row_of(0, 0, 1), row_of(1, 2, 3)], time="time"))
    complete = histories.complete(np.array([0, -1, 1]))
    items = [complete.of_user(user).tolist() for user in range(3)]
    assert items == [[0, 1], [], [2]]
    assert histories.n_users == 2


BY_USER = st.lists(st.lists(st.integers(0, 9), max_size=5), max_size=6)


@given(BY_USER, st.integers(0, 6), st.integers(0, 6), st.integers(0, 4))
def test_a_history_is_lists_of_items(by_user: list[list[int]], start: int, stop: int, length: int) -> None:
    history = History.of(by_user)
    assert len(history) == len(by_user)
    assert [history.of_user(user).tolist() for user in range(len(by_user))] == by_user
    assert history.lengths.tolist() == [len(items) for items in by_user]
    start, stop = sorted((min(start, len(by_user)), min(stop, len(by_user))))
    part = history.slice(start, stop)
    assert [part.of_user(user).tolist() for user in range(len(part))] == by_user[start:stop]
    latest = history.latest(length)
    assert [latest.of_user(user).tolist() for user in range(len(latest))] == [
        items[max(0, len(items) - length) :] for items in by_user
    ]


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 4)), max_size=6))
def test_ranges_are_one_after_another(bounds: list[tuple[int, int]]) -> None:
    start = np.array([begin for begin, _ in bounds], np.int64)
    stop = start + np.array([length for _, length in bounds], np.int64)
    places, starts = ranges(start, stop)
    assert places.tolist() == [place for begin, length in bounds for place in range(begin, begin + length)]
    assert np.diff(starts).tolist() == [length for _, length in bounds]
    items = np.arange(100, 120, dtype=np.int32)
    assert gathered(items, start, stop).items.tolist() == [100 + place for place in places]


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 5)), max_size=6))
def test_a_grid_has_each_range_in_a_row_of_its_own(parts: list[tuple[int, int]]) -> None:
    start = np.array([first for first, _ in parts], np.int64)
    lengths = np.array([length for _, length in parts], np.int64)
    places = grid(start, start + lengths)
    assert places.shape == (len(parts), max(lengths, default=0))
    for row, (first, length) in zip(places, parts, strict=True):
        assert row[:length].tolist() == list(range(first, first + length))
        # Behind the range a place that can be read, too.
        assert ((row[length:] >= 0) & (row[length:] <= max(first + length - 1, 0))).all()


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4)), max_size=6), max_size=6),
    st.integers(0, 6),
    st.integers(0, 6),
    st.integers(0, 4),
)
def test_a_rows_age_is_how_many_rows_of_its_user_are_later(
    by_user: list[list[tuple[int, int]]], start: int, stop: int, length: int
) -> None:
    by_user = [sorted(rows, key=lambda row: row[1]) for rows in by_user]
    order = np.array([time for rows in by_user for _, time in rows], np.int64)
    plain = History.of([[item for item, _ in rows] for rows in by_user])
    history = History(plain.starts, plain.items, order)

    def ages(users: list[list[tuple[int, int]]]) -> list[int]:
        return [sum(other > time for _, other in rows) for rows in users for _, time in rows]

    assert history.ages.tolist() == ages(by_user)
    assert plain.ages.tolist() == [len(rows) - 1 - place for rows in by_user for place in range(len(rows))]
    for user, rows in enumerate(by_user):
        times = [time for _, time in rows]
        assert history.is_later(user).tolist() == [place == 0 or times[place - 1] < times[place] for place in range(len(rows))]
    start, stop = sorted((min(start, len(by_user)), min(stop, len(by_user))))
    assert history.slice(start, stop).ages.tolist() == ages(by_user[start:stop])
    assert history.latest(length).ages.tolist() == ages([rows[max(0, len(rows) - length) :] for rows in by_user])
    left_out = np.full(len(by_user), 3, np.int32)
    rest = without(history, left_out)
    assert rest.ages.tolist() == ages([[row for row in rows if row[0] != 3] for rows in by_user])
