from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gmlfm import Dataset
from gmlfm.data.events import EventRoles, KindTally, history_alone, no_history
from gmlfm.data.schema import InteractionsSchema
from gmlfm.errors import DataError, SchemaError
from tests.data.slow_history import Row, is_earlier, slow_history

KINDS = ("click", "cart", "buy")


@st.composite
def shops(draw: st.DrawFn) -> tuple[list[Row], dict[str, Any], int | None]:
    """Rows of few users and items, so that pairs repeat and times tie; what is declared of them; the least stars of a positive."""
    row = st.fixed_dictionaries(
        {
            "user": st.integers(0, 2).map(str),
            "item": st.integers(0, 3).map(str),
            "time": st.none() | st.integers(0, 3),
            "kind": st.none() | st.sampled_from(KINDS),
            "stars": st.none() | st.integers(1, 5),
        }
    )
    # A row of each kind, so that none is unknown, and a positive whatever the targets are.
    fixed = [{"user": "9", "item": "9", "time": 1, "kind": kind, "stars": 5} for kind in KINDS]
    rows = draw(st.lists(row, max_size=12)) + fixed
    lists = st.none() | st.lists(st.sampled_from(KINDS), min_size=1, unique=True)
    spec: dict[str, Any] = {"repeats": draw(st.sampled_from(["merge", "keep"]))}
    if draw(st.booleans()):
        named = {"targets": draw(lists), "history_events": draw(lists)}
        spec |= {key: kinds for key, kinds in named.items() if kinds is not None}
        spec |= {"event": "kind"} if len(spec) > 1 else {}
    return rows, spec, draw(st.none() | st.just(3))


def as_dataset(rows: list[Row], spec: dict[str, Any], least_stars: int | None, **more: Any) -> Dataset:
    dtypes = {"user": pl.String, "item": pl.String, "time": pl.Int64, "kind": pl.String, "stars": pl.Int64}
    table = pl.DataFrame({name: pl.Series([row[name] for row in rows], dtype=dtype) for name, dtype in dtypes.items()})
    interactions = {"user": "user", "item": "item", "time": "time", **spec, **more}
    interactions |= {} if least_stars is None else {"positive": f"stars >= {least_stars}"}
    return Dataset.from_tables(table, schema={"interactions": interactions})


@given(shops())
def test_targets_and_history_are_those_of_the_plain_loops(shop: tuple[list[Row], dict[str, Any], int | None]) -> None:
    rows, spec, least_stars = shop
    expected = slow_history(rows, spec, least_stars)
    data = as_dataset(rows, spec, least_stars)
    users, items = data.users.ids.to_list(), data.items.ids.to_list()

    def named(frame: pl.DataFrame) -> list[tuple[str, str, int | None]]:
        return [(users[user], items[item], time) for user, item, time in frame.select("user", "item", "time").iter_rows()]

    def in_file(places: list[int]) -> list[tuple[str, str, int | None]]:
        return [(rows[place]["user"], rows[place]["item"], rows[place]["time"]) for place in places]

    assert named(data.interactions) == in_file(expected.targets)
    assert data.counts_as_history.tolist() == expected.counts
    alone = [place for place, _ in expected.alone]
    assert data.history_rows.height == len(alone)
    if alone:
        assert named(data.history_rows) == in_file(alone)
        assert data.history_rows["is_had"].to_list() == [is_had for _, is_had in expected.alone]
        assert data.history_rows["before"].to_list() == [sum(target < place for target in expected.targets) for place in alone]
    for ties in ("strict", "file"):
        tied = as_dataset(rows, spec, least_stars, ties=ties)
        order = np.concatenate([tied.history_order, tied.history_rows_order])
        places = [*expected.targets, *alone]
        earlier = [[is_earlier(rows, place, other, ties) for other in places] for place in places]
        assert (order[:, None] < order[None, :]).tolist() == earlier


SHOP = pl.DataFrame(
    {
        "u": ["a", "a", "b", "a", "c", "a"],
        "i": ["x", "y", "x", "x", "z", "w"],
        "e": ["click", "cart", "buy", "buy", "click", "view"],
        "n": [0, 0, 2, 3, 0, 0],
        "stars": [None, None, 4.0, 5.0, None, None],
        "t": [1, 2, 3, 4, 5, 6],
    }
)
SPEC = {"user": "u", "item": "i", "time": "t", "event": "e", "label": "stars", "weight": "n", "positive": "stars >= 4"}


def shop(**changes: Any) -> Dataset:
    return Dataset.from_tables(SHOP, schema={"interactions": {**SPEC, "targets": ["buy"], **changes}})


def test_only_targets_are_asked_for_stars_and_weights_and_positives() -> None:
    data = shop()
    assert data.interactions["weight"].to_list() == [2.0, 3.0]
    assert data.warnings == ()
    assert data.history_rows["before"].to_list() == [0, 0, 2, 2]
    assert data.history_rows.columns == ["user", "item", "before", "is_had", "time"]
    assert data.history_rows.schema == {**no_history().schema, "time": pl.Int64}
    with pytest.raises(DataError, match="the interactions table row 1: column 'n' holds the weight 0"):
        shop(targets=["buy", "click"])
    with pytest.raises(DataError, match="the interactions table row 2: column 'n' holds the weight 0"):
        shop(targets=["buy", "cart"])


def test_who_has_history_alone_is_numbered_but_not_seen() -> None:
    data = shop()
    assert data.users.ids.to_list() == ["a", "b", "c"]
    assert data.items.ids.to_list() == ["w", "x", "y", "z"]
    assert data.seen_items.tolist() == [1]
    assert data.seen_users.tolist() == [0, 1]


def test_kinds_in_neither_list_are_left_out_before_anything_is_asked_of_them() -> None:
    data = shop(history_events=["cart", "buy"])
    assert data.users.ids.to_list() == ["a", "b"]
    assert data.items.ids.to_list() == ["x", "y"]
    assert data.history_rows.height == 1
    assert data.warnings == (
        "3 of 6 rows of the interactions are left out: their event (click, view) is in neither targets nor history_events.",
    )
    assert "is_history" not in data.interactions.columns
    only_carts = shop(history_events=["cart"])
    assert only_carts.interactions["is_history"].to_list() == [False, False]
    assert only_carts.counts_as_history.tolist() == [False, False]
    assert only_carts.content_hash != data.content_hash


def test_rows_without_an_event_are_of_no_kind() -> None:
    table = SHOP.with_columns(pl.Series("e", [None, "cart", "buy", "buy", None, "cart"]))
    spec = {"user": "u", "item": "i", "event": "e"}
    data = Dataset.from_tables(table, schema={"interactions": {**spec, "targets": ["buy"]}})
    assert data.history_rows.height == 4  # without history_events every row counts
    assert data.warnings == ("2 interactions have no event; they are of none of the kinds that are named.",)
    data = Dataset.from_tables(table, schema={"interactions": {**spec, "targets": ["buy"], "history_events": ["buy"]}})
    assert data.history_rows.height == 0
    assert "4 of 6 rows of the interactions are left out: their event (cart) is in" in data.warnings[1]


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"targets": ["bought"]}, DataError, "[interactions] targets names 'bought', but no row of the interactions table has it in 'e'; known: buy, cart, click, view."),
        ({"targets": ["Buy"]}, DataError, "has it in 'e'; did you mean 'buy'?"),
        ({"history_events": ["clik"]}, DataError, "history_events names 'clik', but no row of the interactions table has it in 'e'; did you mean 'click'?"),
        ({"where": "e != 'buy'"}, DataError, "targets names 'buy', but no row"),
        ({"event": "kind"}, SchemaError, "the interactions table has no column 'kind', which event names"),
        ({"positive": "stars > 8"}, DataError, "no row fulfils positive"),
    ],
)  # fmt: skip
def test_wrong_kinds_are_refused_in_a_sentence(changes: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        shop(**changes)
    assert message in str(caught.value)


def test_targets_without_ids_are_no_targets() -> None:
    table = SHOP.with_columns(pl.when(pl.col("e") == "buy").then(None).otherwise(pl.col("u")).alias("u"))
    spec = {**SPEC, "targets": ["buy"], "read": {"tolerate": 2}}
    with pytest.raises(DataError, match="has no row whose e is one of targets with both a user and an item"):
        Dataset.from_tables(table, schema={"interactions": spec})


def test_kinds_may_be_numbers() -> None:
    table = pl.DataFrame({"u": ["a", "b"], "i": ["x", "y"], "e": [1, 4]})
    data = Dataset.from_tables(table, schema={"interactions": {"user": "u", "item": "i", "event": "e", "targets": ["4"]}})
    assert (data.n_interactions, data.history_rows.height) == (1, 1)


def test_a_table_in_pieces_is_told_of_as_a_whole_and_shortly() -> None:
    spec = InteractionsSchema("u", "i", event="e", targets=("kind 7", "late"), history_events=("kind 7",))
    kinds = pl.Series([f"kind {number}" for number in range(20_000)] + [None, "late"])
    sentences = []
    for n_pieces in (1, 7):
        tally = KindTally(spec)
        for piece in np.array_split(np.arange(len(kinds)), n_pieces):
            tally.add(kinds[piece], EventRoles.of(kinds[piece], spec, len(piece)))
        tally.check("t.csv")
        assert len(tally._kinds) < 1_010
        sentences.append(tally.notes())
    assert sentences[0] == sentences[1]
    assert "20,000 of 20,002 rows of the interactions are left out: their event (kind 0, kind 1, kind 10," in sentences[0][1]
    tally = KindTally(replace(spec, targets=("kynd 3",)))
    tally.add(kinds, EventRoles.of(kinds, spec, len(kinds)))
    with pytest.raises(DataError, match=r"no row of t\.csv has it in 'e'; did you mean") as caught:
        tally.check("t.csv")
    assert len(str(caught.value)) < 200


def test_history_rows_stand_in_the_order_of_the_file() -> None:
    rows = pl.DataFrame({"user": [0, 1, 2, 3, 4], "item": [0, 1, 2, 3, 4]})
    frame = history_alone(rows, np.array([1, 3]), np.array([2]), np.array([4, 0]))
    assert frame.rows() == [(0, 0, 0, False), (2, 2, 1, True), (4, 4, 2, False)]
    assert frame.schema == no_history().schema
