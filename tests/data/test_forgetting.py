from __future__ import annotations

import polars as pl
import pytest

from gmlfm import Dataset, Encoder, make_split
from gmlfm.data.forgetting import data_without, encoder_without, names

SCHEMA = {
    "interactions": {"user": "user", "item": "item", "context": {"channel": "category", "moods": {"kind": "set"}}},
    "users": {"id": "user", "title": "name", "fields": {"city": "category", "hobbies": {"kind": "set"}, "age": "number"}},
}


@pytest.fixture
def data() -> Dataset:
    users = pl.DataFrame(
        {
            "user": ["a", "b", "c"],
            "name": ["Ann", "Ben", "Cid"],
            "city": ["Rome", "Oslo", "Oslo"],
            "hobbies": [["chess", "golf"], ["golf"], None],
            "age": [30.0, 40.0, 50.0],
        }
    )
    rows = pl.DataFrame(
        {
            "user": ["a", "b", "a", "c", "b", "d"],
            "item": ["1", "2", "3", "1", "3", "2"],
            "channel": ["web", "app", "kiosk", "web", None, "app"],
            "moods": [["odd"], ["odd", "sad"], ["mad"], None, ["sad"], ["sad"]],
        }
    )
    return Dataset.from_tables(rows, users=users, schema=SCHEMA)


def test_the_data_without_users_are_the_others(data: Dataset) -> None:
    without, is_kept = data_without(data, [0, 3])
    assert is_kept.tolist() == [False, True, False, True, True, False]
    assert without.users.ids.to_list() == ["b", "c"]
    assert without.users.n_listed == 2
    assert without.users.titles is not None
    assert without.users.titles.to_list() == ["Ben", "Cid"]
    assert without.users.fields["city"].to_list() == ["Oslo", "Oslo"]
    assert without.user_numbers.tolist() == [0, 1, 0]
    assert without.context["channel"].to_list() == ["app", "web", None]
    assert without.items is data.items
    assert len(data.users) == 4


def test_history_rows_of_a_user_go_and_the_others_are_counted_anew() -> None:
    rows = [("a", "x", "buy"), ("b", "x", "see"), ("a", "y", "buy"), ("b", "y", "buy"), ("c", "x", "see"), ("a", "x", "buy")]
    table = pl.DataFrame([*rows, ("c", "y", "buy"), ("b", "z", "see")], schema=["u", "i", "e"], orient="row")
    schema = {"interactions": {"user": "u", "item": "i", "event": "e", "targets": ["buy"]}}
    data = Dataset.from_tables(table, schema=schema)
    for user in "abc":
        without, _ = data_without(data, [data.users.ids.to_list().index(user)])
        # Items of the others keep their numbers, so rows are compared by id.
        expected = Dataset.from_tables(table.filter(pl.col("u") != user), schema=schema)
        for frame, other in ((without.interactions, expected.interactions), (without.history_rows, expected.history_rows)):
            named = [data.items.ids[item] for item in frame["item"]]
            assert named == [expected.items.ids[item] for item in other["item"]]
            assert frame.drop("item").rows() == other.drop("item").rows()
        assert without.history_order.tolist() == expected.history_order.tolist()


def test_a_note_that_names_a_user_goes_with_them(data: Dataset) -> None:
    object.__setattr__(data, "warnings", ("users line 3: 'a' has no age", "a1 is odd; b, too", "5 rows have no time"))
    assert data_without(data, [0])[0].warnings == ("a1 is odd; b, too", "5 rows have no time")
    assert data_without(data, [1])[0].warnings == ("users line 3: 'a' has no age", "5 rows have no time")
    assert names("'x.y'", "x.y")
    assert not names("'xzy' u17b", "x.y")


def test_values_that_nobody_else_has_leave_the_vocabulary(data: Dataset) -> None:
    encoder = Encoder.fit(data, make_split(data, "none").train)
    without, _ = data_without(data, [0])
    changed, rows = encoder_without(encoder, 0, data, without)
    gone = {("user", "user", "a"), ("user", "city", "Rome"), ("user", "hobbies", "chess")}
    gone |= {("context", "channel", "kiosk"), ("context", "moods", "mad")}
    assert set(encoder.attribute_names(rows).rows()) == gone
    assert encoder.attribute_names(rows[:1]).rows() == [("user", "user", "a")]
    known = {text for texts in changed.values for text in texts.to_list()}
    assert known.isdisjoint({"a", "Rome", "chess", "kiosk", "mad"})
    assert {"b", "Oslo", "golf", "web", "odd", "1", "3"} <= known
    assert [len(texts) for texts in changed.values] == [len(texts) for texts in encoder.values]  # no other row moves
    assert "a" in encoder.values[0].to_list()
    encoded, before = changed.encode(without), encoder.encode(data)
    assert (encoded.user.ids == before.user.ids[1:, : encoded.user.ids.shape[1]]).all()
    assert not before.user.ids[1:, encoded.user.ids.shape[1] :].any()
    twice, more = encoder_without(changed, 0, without, data_without(without, [0])[0])
    assert len({text for texts in twice.values for text in texts.to_list() if text.startswith("\0")}) >= 2
    assert ("user", "city", "Oslo") not in twice.attribute_names(more).rows()  # c lives there, too
