from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from gmlfm.data.profiles import profile
from gmlfm.data.references import References
from gmlfm.errors import SchemaError


def references(**tables: dict[str, Any]) -> References:
    frames = {name: pl.DataFrame(columns) for name, columns in tables.items()}
    return References(frames, {name: {key: profile(frame[key]) for key in frame.columns} for name, frame in frames.items()})


def test_columns_called_ids_say_nothing_else() -> None:
    names = ["user", "userId", "Buyer No", "customers", "user_agent", "user name", "item", "id", "when"]
    finder = references(rows={name: ["a", "b", "a"] for name in names})
    assert finder.called_ids("rows", "users") == ["user", "userId", "Buyer No", "customers"]
    assert finder.called_ids("rows", "items") == ["item"]
    assert [column.name for column in finder.named("rows", "users", ["user"])][-2:] == ["user_agent", "user name"]


def test_names_go_before_shared_values_and_among_names_shared_values_decide() -> None:
    rows = {"n": [1, 2, 3, 1], "item": [1, 2, 3, 1], "user": ["x", "y", "z", "x"], "buyer": [1, 2, 7, 2]}
    finder = references(rows=rows, people={"code": [1, 2, 3], "city": ["a", "b", "b"]})
    assert finder.best("rows", "people", "users")[:2] == ("code", "buyer")
    assert finder.best("rows", "people", "items")[:2] == ("code", "item")
    assert finder.best("rows", "people", "users", ["buyer"]).foreign_key == ""
    unnamed = references(rows={"n": [1, 2, 3, 1], "item": [1, 2, 3, 1]}, people={"code": [1, 2, 3]})
    assert unnamed.best("rows", "people", "users").foreign_key == "n"
    assert unnamed.refers_to("rows", "people")
    assert not references(rows={"n": [8, 9, 9]}, people={"code": [1, 2, 3]}).refers_to("rows", "people")


@pytest.mark.parametrize(
    ("columns", "key"),
    [
        ({"item_id": [1, 2, 3], "rank": [3, 2, 1]}, "item_id"),
        ({"rank": [3, 2, 1], "sku": [1, 2, 3]}, "sku"),
        ({"rank": [3, 2, 1], "position": [1, 2, 3]}, "rank"),
        ({"sku": [7, 8, 9], "position": [1, 2, 3]}, "position"),
        ({"sku": [7, 8, 9], "item_id": [5, 5, 6]}, "item_id"),
        ({"sku": [7, 8, 9], "other": [5, 5, 6]}, "sku"),
    ],
)
def test_the_key_of_a_side_is_found_by_name_and_shared_values(columns: dict[str, list[int]], key: str) -> None:
    finder = references(rows={"item_id": [1, 2, 3, 1]}, things=columns)
    assert finder.key_named_by("rows", "item_id", "things", "items") == key


def test_a_side_without_a_key_is_refused() -> None:
    finder = references(rows={"item_id": [1, 2, 2]}, things={"other": [5, 5, 6]})
    with pytest.raises(SchemaError, match="no column of things has every value once, so none can be the id that item_id names"):
        finder.key_named_by("rows", "item_id", "things", "items")
