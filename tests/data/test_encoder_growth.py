from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from gmlfm import Dataset, Encoder
from gmlfm.data.attributes import ROLES
from gmlfm.data.encoder_growth import GrownEncoder, grown_encoder
from gmlfm.data.growing import grown_data

SCHEMA: dict[str, Any] = {
    "interactions": {"user": "user", "item": "item", "time": "time", "context": {"on": "category"}},
    "items": {"id": "item", "fields": {"tags": {"kind": "set"}, "price": "number"}},
}
Tags = dict[str, list[str]]


def data_of(rows: list[tuple[str, str, int, str]], tags: Tags, **encoding: Any) -> Dataset:
    table = pl.DataFrame(rows, schema=["user", "item", "time", "on"], orient="row")
    prices = [10.0 * n for n in range(len(tags))]
    items = pl.DataFrame({"item": list(tags), "tags": list(tags.values()), "price": prices})
    return Dataset.from_tables(table, items=items, schema={**SCHEMA, **({"encoding": encoding} if encoding else {})})


OLD = [("u1", "i1", 1, "web"), ("u2", "i2", 2, "app"), ("u2", "i1", 3, "web")]
NEW = [("u3", "i3", 4, "tv"), ("u1", "i3", 5, "web")]
OLD_TAGS = {"i1": ["a"], "i2": ["a", "b"]}
NEW_TAGS = {**OLD_TAGS, "i3": ["c", "a"]}


def grown_of(roles: Any = (), *, user_ids: bool = True, **encoding: Any) -> tuple[Encoder, Dataset, GrownEncoder]:
    before = data_of(OLD, OLD_TAGS, **encoding)
    encoder = Encoder.fit(before, np.arange(3), roles=roles, user_ids=user_ids)
    data = grown_data(before, data_of(OLD + NEW, NEW_TAGS, **encoding)).data
    return encoder, data, grown_encoder(encoder, data, np.arange(5), user_ids=user_ids)


def names(encoder: Encoder, rows: Any) -> list[tuple[str, str, str]]:
    return encoder.attribute_names(rows).rows()


@pytest.mark.parametrize("roles", [(), ("past",), ROLES])
def test_each_old_row_moves_and_each_new_one_begins_at_the_unknown_row_of_its_field(roles: Any) -> None:
    before, _, grown = grown_of(roles)
    after = grown.encoder
    old_names, new_names = names(before, np.arange(1, before.n_rows)), names(after, np.arange(1, after.n_rows))
    assert grown.origins[0] == 0
    for name, origin, is_new in zip(new_names, grown.origins[1:], grown.is_new[1:], strict=True):
        part, field, _ = name
        assert old_names[origin - 1] == ((part, field, "(unknown)") if is_new else name)
    assert sorted(grown.origins[~grown.is_new]) == list(range(before.n_rows))
    expected = {("user", "user", "u3"), ("context", "on", "tv")}
    expected |= {(part, *value) for part in ("item", *roles) for value in (("item", "i3"), ("tags", "c"))}
    is_new = grown.is_new[1:]
    assert {name for name, new in zip(new_names, is_new, strict=True) if new} == expected
    assert grown.n_new == len(expected)


def test_numbers_keep_their_scale_and_entities_their_attributes() -> None:
    before, data, grown = grown_of()
    old, new = before.encode(data_of(OLD, OLD_TAGS)), grown.encoder.encode(data)
    back = np.append(grown.origins, 0)
    for side, longer in ((old.user, new.user), (old.item, new.item), (old.context, new.context)):
        n, width = side.ids.shape
        assert (back[longer.ids[:n, :width]] == side.ids).all()
        assert (longer.values[:n, :width] == side.values).all()
    # What had no row stands where its value does now: a new id is no longer the unknown one.
    assert names(grown.encoder, new.item.ids[2][:1]) == [("item", "item", "i3")]


def test_rare_values_get_no_row_and_old_ones_keep_theirs() -> None:
    _, _, grown = grown_of(min_count={"item": 3, "tags": 2})
    assert "i3" not in grown.encoder.values[2].to_list()
    assert grown.encoder.values[3].to_list() == ["a"]


def test_no_user_gets_a_row_where_none_has() -> None:
    before, _, grown = grown_of(("last",), user_ids=False)
    assert grown.encoder.fields[0].n_values == before.fields[0].n_values == 0


def test_growing_by_nothing_changes_nothing(tmp_path: Any) -> None:
    before, data, grown = grown_of(("last",))
    again = grown_encoder(grown.encoder, data, np.arange(5))
    assert again.encoder.hash == grown.encoder.hash != before.hash
    assert (again.origins == np.arange(grown.encoder.n_rows)).all()
    grown.encoder.save(tmp_path / "e")
    assert Encoder.load(tmp_path / "e").hash == grown.encoder.hash
