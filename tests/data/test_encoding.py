from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given

from gmlfm import Dataset, Encoder, make_split
from gmlfm.data.attributes import FIRST_VALUE, PADDING, PARTS, AttributeTable, FieldCode
from gmlfm.data.encoding import Encoded
from gmlfm.errors import DataError, OptionError
from tests.data.arbitrary import datasets, plain
from tests.fuzz.cases import DAMAGES, damaged, generator


def fitted(data: Dataset) -> Encoder:
    return Encoder.fit(data, np.arange(data.n_interactions))


def same(left: AttributeTable, right: AttributeTable) -> bool:
    return np.array_equal(left.ids, right.ids) and np.array_equal(left.values, right.values)


def read_back(encoder: Encoder, table: AttributeTable) -> list[dict[str, dict[str, float]]]:
    """Of each entity: field -> the names of its attribute rows and their x. A field without a row is left out."""
    names = encoder.attribute_names(np.arange(1, encoder.n_rows)).rows()
    entities: list[dict[str, dict[str, float]]] = []
    for rows, values in zip(table.ids.tolist(), table.values.tolist(), strict=True):
        fields: dict[str, dict[str, float]] = {}
        for row, x in zip(rows, values, strict=True):
            if row != PADDING:
                _, field, value = names[row - 1]
                fields.setdefault(field, {})[value] = x
        entities.append(fields)
    return entities


MISSING = {"(missing)": 1.0}


@given(datasets())
def test_rows_name_every_value_and_tell_unknown_from_missing(data: Dataset) -> None:
    encoder = fitted(data)
    encoded = encoder.encode(data)
    users, items = read_back(encoder, encoded.user), read_back(encoder, encoded.item)
    for part, entities, side, seen in (
        ("user", users, data.users, data.seen_users),
        ("item", items, data.items, data.seen_items),
    ):
        expected = ["(unknown)"] * len(side)
        for number in seen:
            expected[number] = side.ids[int(number)]
        assert [fields[part] for fields in entities] == [{value: 1.0} for value in expected]
        if side.fields.width:
            assert [fields["a"] for fields in entities] == [one_value(value) for value in side.fields["a"]]
            weigh = math.sqrt if part == "user" else lambda size: 1.0
            assert [fields.get("s", {}) for fields in entities] == [members(value, weigh) for value in side.fields["s"]]
            code = next(field for field in encoder.fields if field.part == part and field.kind == "number")
            for number, fields in zip(side.fields["n"], entities, strict=True):
                assert fields["n"] == (
                    MISSING if number is None else {"n": pytest.approx(standardised(number, code), abs=1e-5)}
                )
    occasions = read_back(encoder, encoded.context)
    assert [fields["device"] for fields in occasions] == [one_value(value) for value in data.context["device"]]
    assert [fields.get("mood", {}) for fields in occasions] == [members(value, float) for value in data.context["mood"]]


def one_value(value: str | None) -> dict[str, float]:
    return MISSING if value is None else {value: 1.0}


def members(values: pl.Series | None, divisor: Callable[[int], float]) -> dict[str, float]:
    return MISSING if values is None else {value: pytest.approx(1.0 / divisor(len(values))) for value in values}


def standardised(number: float, code: FieldCode) -> float:
    return min(max((number - code.centre) / code.scale, -5.0), 5.0)


@given(datasets())
def test_rows_lie_in_their_fields_blocks_and_padding_has_no_weight(data: Dataset) -> None:
    encoder = fitted(data)
    encoded = encoder.encode(data)
    for part in PARTS:
        table = getattr(encoded, part)
        assert table.ids.dtype == np.int32
        assert table.values.dtype == np.float32
        assert np.isfinite(table.values).all()
        assert (np.abs(table.values) <= max(5, 30)).all()
        in_block = np.zeros(table.ids.shape, bool)
        for field in encoder.part(part):
            in_block |= (table.ids >= field.offset) & (table.ids < field.end)
        assert (in_block | ((table.ids == PADDING) & (table.values == 0))).all()
    offsets = [field.offset for field in encoder.fields]
    assert offsets == [1, *(field.end for field in encoder.fields[:-1])]


@given(datasets())
def test_the_order_of_rows_in_the_file_does_not_move_the_rows_of_attributes(data: Dataset) -> None:
    reversed_rows = Dataset(data.schema, data.interactions.reverse(), data.context.reverse(), data.users, data.items)
    assert fitted(reversed_rows).hash == fitted(data).hash


@given(data=datasets())
def test_saved_and_read_back_it_is_identical(data: Dataset, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("encoder") / "encoder"
    encoder = fitted(data)
    encoder.save(folder)
    loaded = Encoder.load(folder)
    assert loaded.hash == encoder.hash
    assert loaded.fields == encoder.fields
    assert all(left.equals(right) for left, right in zip(loaded.values, encoder.values, strict=True))
    assert loaded.user_ids.equals(encoder.user_ids)
    for part in PARTS:
        assert same(getattr(loaded.encode(data), part), getattr(encoder.encode(data), part))


def test_an_id_without_a_training_positive_uses_the_unknown_row() -> None:
    data = plain([1, 1, 1, 2], [1, 2, 3, 1], [1, 2, 3, 4])
    split = make_split(data)
    encoder = Encoder.fit(data, split.train)
    unknown = encoder.part("item")[0].unknown_row
    rows = encoder.encode(data).item.ids[:, 0]
    assert (rows == unknown).tolist() == [False, True, True]
    assert encoder.n_attributes == 2 + 1


def test_negative_rows_do_not_make_an_id_known() -> None:
    table = pl.DataFrame({"u": ["a", "a"], "i": ["x", "y"], "stars": [5, 1]})
    data = Dataset.from_tables(table, schema={"interactions": {"user": "u", "item": "i", "positive": "stars > 3"}})
    encoder = fitted(data)
    assert encoder.values[1].to_list() == ["x"]


def test_min_count_sends_rare_values_to_unknown() -> None:
    interactions = pl.DataFrame({"u": ["a", "b", "c"], "i": ["x", "x", "y"]})
    items = pl.DataFrame({"i": ["x", "y", "z"], "tags": [["p", "q", "r"], ["p"], ["q", "p"]]})
    schema = {
        "interactions": {"user": "u", "item": "i"},
        "items": {"id": "i", "fields": {"tags": {"kind": "set"}}},
        "encoding": {"min_count": {"item": 2, "tags": 2}},
    }
    data = Dataset.from_tables(interactions, items=items, schema=schema)
    encoder = fitted(data)
    item, tags = encoder.part("item")
    assert encoder.values[1].to_list() == ["x"]
    assert encoder.values[2].to_list() == ["p", "q"]
    table = encoder.encode(data).item
    assert table.ids[:, 0].tolist() == [item.offset + FIRST_VALUE, item.unknown_row, item.unknown_row]
    tag_values = dict(zip(table.ids[0, 1:].tolist(), table.values[0, 1:].tolist(), strict=True))
    assert tag_values == {
        tags.offset + 2: pytest.approx(1 / 3),
        tags.offset + 3: pytest.approx(1 / 3),
        tags.unknown_row: pytest.approx(1 / 3),
    }


def test_ids_come_back_in_the_callers_type() -> None:
    data = Dataset.from_tables(
        pl.DataFrame({"u": [7, 8], "i": ["007", "8"]}), schema={"interactions": {"user": "u", "item": "i"}}
    )
    encoder = fitted(data)
    assert encoder.ids_of_users(np.array([1, 0])).to_list() == [8, 7]
    assert encoder.ids_of_items(np.array([0])).to_list() == ["007"]
    assert encoder.user_numbers([8, "7", 9]).tolist() == [1, 0, -1]
    assert encoder.item_numbers(["7"]).tolist() == [-1]


def test_rows_have_names() -> None:
    data = plain([1, 2], [5, 5])
    encoder = fitted(data)
    names = encoder.attribute_names(np.arange(1, encoder.n_rows))
    assert names.rows()[:3] == [("user", "user", "(unknown)"), ("user", "user", "(missing)"), ("user", "user", "u1")]
    assert names.rows()[-1] == ("item", "item", "i5")
    with pytest.raises(DataError, match="attribute rows go from 1 to"):
        encoder.attribute_names([encoder.n_rows])


def test_a_newcomer_is_encoded_from_the_attributes_they_bring() -> None:
    users = pl.DataFrame({"u": ["a", "b"], "city": ["Rome", "Oslo"], "age": [30.0, 40.0]})
    schema = {"interactions": {"user": "u", "item": "i"}, "users": {"id": "u", "fields": {"city": "category", "age": "number"}}}
    data = Dataset.from_tables(pl.DataFrame({"u": ["a", "b"], "i": ["x", "x"]}), users, schema=schema)
    encoder = fitted(data)
    table = encoder.encode_part("user", None, pl.DataFrame({"city": ["Rome", "Paris", None]}), 3)
    user, city, age = encoder.part("user")
    assert table.ids[:, 0].tolist() == [user.unknown_row] * 3
    assert table.ids[1:, 1].tolist() == [city.unknown_row, city.missing_row]
    assert encoder.attribute_names(table.ids[:1, 1])["value"].to_list() == ["Rome"]
    assert table.ids[:, 2].tolist() == [age.unknown_row] * 3


def test_a_damaged_or_newer_encoder_is_refused(tmp_path: Path) -> None:
    encoder = fitted(plain([1, 2], [5, 5]))
    encoder.save(tmp_path / "e")
    text = (tmp_path / "e" / "encoder.json").read_text()
    (tmp_path / "e" / "encoder.json").write_text(text.replace('"format": 1', '"format": 2'))
    with pytest.raises(DataError, match="format 2, this version reads 1"):
        Encoder.load(tmp_path / "e")
    (tmp_path / "e" / "encoder.json").write_text(text)
    pl.DataFrame({"id": ["u1", "u3"]}).write_parquet(tmp_path / "e" / "users.parquet")
    with pytest.raises(DataError, match="does not fit its hash"):
        Encoder.load(tmp_path / "e")
    with pytest.raises(DataError, match="no readable encoder"):
        Encoder.load(tmp_path / "gone")


def test_no_training_rows_is_refused() -> None:
    with pytest.raises(DataError, match="no training rows are left"):
        Encoder.fit(plain([1], [1]), np.empty(0, np.int64))


def test_unknown_numbers_have_no_id_and_whole_floats_are_ids() -> None:
    data = Dataset.from_tables(
        pl.DataFrame({"u": [1.0, 2.0], "i": ["x", "y"]}), schema={"interactions": {"user": "u", "item": "i"}}
    )
    encoder = fitted(data)
    assert encoder.ids_of_users(encoder.user_numbers(["nope", 2.0])).to_list() == [None, 2]


def test_min_count_of_an_id_by_either_name(tmp_path: Path) -> None:
    schema = {"interactions": {"user": "u", "item": "i"}, "encoding": {"min_count": {"item.item": 2}}}
    data = Dataset.from_tables(pl.DataFrame({"u": ["a", "b", "c"], "i": ["x", "x", "y"]}), schema=schema)
    assert Encoder.fit(data, [0, 1, 2]).values[1].to_list() == ["x"]
    Encoder.fit(data, [0, 1, 2]).save(str(tmp_path / "e"))
    assert Encoder.load(str(tmp_path / "e")).n_attributes == 4


def test_the_user_side_is_users_with_the_context_of_their_rows() -> None:
    table = pl.DataFrame({"u": ["a", "b", "a"], "i": ["x", "x", "y"], "device": ["web", "app", None]})
    schema = {"interactions": {"user": "u", "item": "i", "context": {"device": "category"}}}
    data = Dataset.from_tables(table, schema=schema)
    encoded = fitted(data).encode(data)
    users, rows = np.array([0, 1, 0]), np.array([2, 1, 0])
    with_context = encoded.user_side(users, rows)
    assert with_context.ids.tolist() == np.hstack([encoded.user.ids[users], encoded.context.ids[rows]]).tolist()
    assert with_context.values.tolist() == np.hstack([encoded.user.values[users], encoded.context.values[rows]]).tolist()
    users_alone = AttributeTable(encoded.user.ids[users], encoded.user.values[users])
    assert same(encoded.user_side(users), users_alone)
    no_context = AttributeTable(np.empty((3, 0), np.int32), np.empty((3, 0), np.float32))
    assert same(Encoded(encoded.user, no_context, encoded.item).user_side(users, rows), users_alone)


def test_every_id_has_a_row_where_that_is_asked() -> None:
    data = plain([1, 2, 3], [1, 2, 3])
    some, every = Encoder.fit(data, [0]), Encoder.fit(data, [0], all_ids=True)
    for part, side in (("user", data.users), ("item", data.items)):
        sizes = [next(code.n_values for code in encoder.part(part) if code.kind == "id") for encoder in (some, every)]  # type: ignore[arg-type]
        assert sizes == [1, len(side)]
    assert len(np.unique(every.encode(data).item.ids[:, 0])) == 3


def test_numbers_are_decoded_from_x() -> None:
    data = Dataset.from_tables(
        pl.DataFrame({"user": ["a", "b", "a"], "item": ["x", "y", "z"], "time": [1, 2, 3]}),
        items=pl.DataFrame({"item": ["x", "y", "z"], "price": [12.5, None, 40.0], "colour": ["red", "blue", "red"]}),
        schema={
            "interactions": {"user": "user", "item": "item", "time": "time"},
            "items": {"id": "item", "fields": {"price": "number", "colour": "category"}},
        },
    )
    encoder = Encoder.fit(data, [0, 1, 2])
    table = encoder.encode(data).item
    shown = [encoder.attribute_values(table.ids[row], table.values[row]).rows() for row in range(3)]
    assert shown[0][1:] == [("item", "price", "price", 12.5), ("item", "colour", "red", None)]
    assert shown[1][1] == ("item", "price", "(missing)", None)
    assert shown[2][1][3] == 40.0
    assert [encoder.is_number(int(row)) for row in table.ids[0]] == [False, True, False]


def test_any_damage_to_a_saved_encoder_is_harmless_or_refused(tmp_path: Path) -> None:
    encoder = fitted(plain([1, 2, 3, 1], [1, 2, 3, 3]))
    encoder.save(tmp_path / "e")
    n_refused = 0
    for path in sorted((tmp_path / "e").iterdir()):
        content = path.read_bytes()
        for number in range(2 * len(DAMAGES)):
            path.write_bytes(damaged(content, DAMAGES[number % len(DAMAGES)], generator(path.name, number)))
            try:
                assert Encoder.load(tmp_path / "e").hash == encoder.hash
            except DataError:
                n_refused += 1
        path.write_bytes(content)
    assert n_refused > 30


@pytest.mark.parametrize("user", ["\ud800", 10**5_000], ids=["half a pair", "digits"])
def test_an_id_that_is_no_text_is_one_sentence(user: object) -> None:
    encoder = fitted(plain([1, 2, 3], [1, 2, 3]))
    for ask in (encoder.user_numbers, encoder.item_numbers, encoder.ids_given):
        with pytest.raises(OptionError, match=r"an id cannot be used \(.*\); ids are texts or numbers"):
            ask([user])
