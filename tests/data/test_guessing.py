from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

from gmlfm import Dataset
from gmlfm.data.guessing import guess_schema
from gmlfm.data.schema import Field
from gmlfm.data.schema_toml import to_toml
from gmlfm.errors import DataError, SchemaError

ORDERS = pl.DataFrame(
    {
        "customer": ["ann", "bob", "ann", "cho"],
        "sku": ["s1", "s1", "s2", "s3"],
        "bought": ["2020-01-01", "2020-01-02", "2020-01-03", "2020-01-04"],
        "qty": [1, 2, 1, 1],
        "note": ["web", "app", "web", "web"],
    }
)
PEOPLE = pl.DataFrame({"id": ["ann", "bob", "cho"], "city": ["Oslo", "Rome", "Oslo"]})
GOODS = pl.DataFrame({"code": ["s1", "s2", "s3"], "title": ["A b", "C d e", "F g"], "tags": ["x|y", "y|x", "x|y"]})


def test_tables_find_their_roles_keys_and_kinds() -> None:
    guess = guess_schema({"goods.csv": GOODS, "orders.csv": ORDERS, "people.csv": PEOPLE})
    assert guess.tables == {"interactions": "orders.csv", "items": "goods.csv", "users": "people.csv"}
    interactions, users, items = guess.schema.interactions, guess.schema.users, guess.schema.items
    assert (interactions.user, interactions.item) == ("customer", "sku")
    assert (interactions.time, interactions.weight, interactions.label) == ("bought", "qty", None)
    assert users is not None
    assert items is not None
    assert (users.id, users.fields) == ("id", (Field("city", "category"),))
    assert (items.id, items.title, items.fields) == ("code", "title", (Field("tags", "set", "|"),))
    assert guess.reasons["interactions.user"] == "its values are those of id in people.csv"
    assert "note: 2 different texts" in guess.reasons["interactions.unused"]


def test_atomic_files_are_understood_by_their_names_and_suffixes() -> None:
    events = pl.DataFrame({"a:token": ["1", "1", "2"], "b:token": ["5", "6", "5"], "timestamp:float": [5.0, 6.0, 7.0]})
    things = pl.DataFrame({"b:token": ["5", "6", "7"], "genre:token_seq": ["x y", "y", "y"], "n:token": ["1", "2", "2"]})
    guess = guess_schema({"x.item": things, "x.inter": events}, user="a:token", item="b:token")
    assert guess.tables == {"interactions": "x.inter", "items": "x.item"}
    assert guess.schema.items is not None
    assert guess.schema.items.fields == (Field("genre:token_seq", "set", " "), Field("n:token", "category"))
    assert guess.schema.interactions.time == "timestamp:float"
    plain = {"items": things.rename(lambda name: name[0]), "interactions": events.rename(lambda name: name[0])}
    typed = guess_schema(plain, known_roles=True, types={"items": {"g": "token_seq"}})
    assert typed.schema.items is not None
    assert Field("g", "set", " ") in typed.schema.items.fields


def test_a_column_called_the_users_goes_before_one_that_shares_the_users_values() -> None:
    rows = pl.DataFrame({"item_id": [1 + n % 50 for n in range(300)], "user_id": [2000 + n % 30 for n in range(300)]})
    users = pl.DataFrame({"key": range(1, 1001), "city": ["Rome", "Oslo"] * 500})
    guess = guess_schema({"interactions": rows, "users": users}, known_roles=True)
    assert (guess.schema.interactions.user, guess.schema.interactions.item) == ("user_id", "item_id")
    assert guess.reasons["interactions.user"] == "by its name; 30 different values"


def test_web_addresses_are_items_only_where_nothing_else_is() -> None:
    visits = pl.DataFrame({"reader": ["a", "b", "a", "b"], "page": [f"http://x.y/{n % 3}" for n in range(4)]})
    assert guess_schema({"visits": visits}).schema.interactions.item == "page"
    with_code = visits.with_columns(pl.Series("code", ["k", "l", "k", "m"]))
    guess = guess_schema({"visits": with_code})
    assert guess.schema.interactions.item == "code"
    assert "page: web addresses: not for training" in guess.reasons["interactions.unused"]


def test_doubtful_values_are_warned_of_and_noted() -> None:
    ratings = pl.DataFrame({"user": ["u", "v"] * 6, "item": ["x", "y", "z"] * 4, "rating": [0] * 8 + [5, 7, 8, 9]})
    users = pl.DataFrame({"user": ["u", "v", "w"], "age": [30, 30, 244]})
    guess = guess_schema({"ratings": ratings, "users": users})
    assert len(guess.warnings) == 2
    assert "'rating' is 0 in 8 of 12 rows" in guess.reasons["interactions.notes"]
    assert "'age' has 1 of 3 values that cannot be ages" in guess.reasons["users.notes"]
    assert guess_schema({"orders.csv": ORDERS}).warnings == ()


def test_columns_may_be_named_by_the_caller() -> None:
    guess = guess_schema({"orders.csv": ORDERS}, user="note", item="customer")
    assert (guess.schema.interactions.user, guess.schema.interactions.item) == ("note", "customer")
    with pytest.raises(SchemaError, match="has no column 'custmer'; did you mean 'customer'"):
        guess_schema({"orders.csv": ORDERS}, user="custmer")
    with pytest.raises(SchemaError, match="'sku' cannot be both the user and the item"):
        guess_schema({"orders.csv": ORDERS}, user="sku", item="sku")


def test_what_cannot_be_guessed_is_refused() -> None:
    with pytest.raises(DataError, match="the orders table is empty"):
        guess_schema({"orders": ORDERS.clear()})
    with pytest.raises(SchemaError, match="4 tables were given; expected the interactions and at most one of users"):
        guess_schema(dict.fromkeys("abcd", ORDERS))
    with pytest.raises(SchemaError, match="no column of ratings looks like the user's id"):
        guess_schema({"ratings": pl.DataFrame({"x": [1.5, 2.5], "y": [0.5, 0.25]})})


def test_a_column_that_numbers_the_rows_is_no_id() -> None:
    readers, media = [f"L {n % 7}" for n in range(60)], [f"A {n % 11}" for n in range(60)]
    lendings = pl.DataFrame({"Ausleihnummer": range(1, 61), "Leser": readers, "Exemplar": media})
    guess = guess_schema({"Ausleihen.txt": lendings})
    assert {guess.schema.interactions.user, guess.schema.interactions.item} == {"Leser", "Exemplar"}


def test_an_id_is_found_where_a_few_lines_stand_twice() -> None:
    rows = pl.DataFrame(
        {"number": range(1, 61), "user": [f"u{n % 9}" for n in range(60)], "copy": [f"A {n % 20}" for n in range(60)]}
    )
    media = pl.DataFrame({"mark": [f"A {n}" for n in range(20)] + ["A 4"], "kind": ["a", "b", "c"] * 7})
    guess = guess_schema({"interactions": rows, "items": media}, known_roles=True)
    assert (guess.schema.interactions.item, guess.schema.items and guess.schema.items.id) == ("copy", "mark")


def test_a_column_of_events_says_what_is_learned_and_what_is_history() -> None:
    n = 60
    log = pl.DataFrame(
        {
            "visitor_id": [f"v{row % 7}" for row in range(n)],
            "item_id": [f"i{row % 11}" for row in range(n)],
            "event_type": [("view", "cart", "remove_from_cart", "purchase")[row % 4] for row in range(n)],
            "channel": [("web", "app")[row % 2] for row in range(n)],
        }
    )
    guess = guess_schema({"log.csv": log})
    interactions = guess.schema.interactions
    assert (interactions.event, interactions.targets) == ("event_type", ("purchase",))
    assert interactions.history_events == ("cart", "purchase", "view")
    assert guess.reasons["interactions.event"] == "kinds of events: cart, purchase, remove_from_cart, view"
    assert "event_type" not in guess.reasons["interactions.unused"]
    text = to_toml(replace(guess.schema, interactions=replace(interactions, path="log.csv")), guess.reasons)
    assert 'targets = ["purchase"]                    # what is learned and recommended; the other kinds are history' in text
    data = Dataset.from_tables(log, schema=guess.schema)
    assert (data.n_interactions, data.history_rows["is_had"].any()) == (15, False)
    assert guess_schema({"log.csv": log.drop("event_type")}).schema.interactions.event is None
