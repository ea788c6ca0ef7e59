from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gmlfm import Dataset, Encoder, make_split
from gmlfm.data.attributes import FIRST_VALUE, AttributeTable
from gmlfm.errors import DataError
from tests.data.arbitrary import datasets, plain


def fitted(data: Dataset) -> Encoder:
    return Encoder.fit(data, np.arange(data.n_interactions))


def same(left: AttributeTable, right: AttributeTable) -> bool:
    return bool(np.array_equal(left.ids, right.ids) and np.array_equal(left.values, right.values))


@given(datasets())
def test_encoding_then_decoding_gives_the_tables_back(data: Dataset) -> None:
    encoder = fitted(data)
    encoded = encoder.encode(data)
    for part, ids, fields in (("user", data.users.ids, data.users.fields), ("item", data.items.ids, data.items.fields)):
        table = getattr(encoded, part)
        decoded = encoder.decode_part(part, table)  # type: ignore[arg-type]
        seen = data.seen_users if part == "user" else data.seen_items
        assert decoded[part][seen].to_list() == ids[seen].to_list()
        for name in fields.columns:
            if name == "n":
                _check_numbers(encoder, part, fields[name].to_list(), decoded[name].to_list())
            elif name == "s":
                expected = [None if one is None else set(one) for one in fields[name].to_list()]
                assert [None if one is None else set(one) for one in decoded[name].to_list()] == expected
            else:
                assert decoded[name].to_list() == fields[name].to_list()
    context = encoder.decode_part("context", encoded.context)
    assert context["device"].to_list() == data.context["device"].to_list()


def _check_numbers(encoder: Encoder, part: str, given: list[float | None], decoded: list[float | None]) -> None:
    code = next(one for one in encoder.part(part) if one.kind == "number")  # type: ignore[arg-type]
    for before, after in zip(given, decoded, strict=True):
        if before is None:
            assert after is None
            continue
        assert after is not None
        assert math.isfinite(after)
        if math.isfinite(before) and abs(before - code.centre) < 5 * code.scale:
            assert after == pytest.approx(before, rel=1e-5, abs=1e-5 * code.scale)


@given(datasets())
def test_rows_lie_in_their_fields_blocks_and_padding_has_no_weight(data: Dataset) -> None:
    encoder = fitted(data)
    encoded = encoder.encode(data)
    for part in ("user", "context", "item"):
        table = getattr(encoded, part)
        assert table.ids.dtype == np.int32
        assert table.values.dtype == np.float32
        assert np.isfinite(table.values).all()
        assert (np.abs(table.values) <= max(5, 30)).all()
        blocks = [(one.offset, one.end) for one in encoder.part(part)]  # type: ignore[arg-type]
        inside = np.zeros(table.ids.shape, bool)
        for low, high in blocks:
            inside |= (table.ids >= low) & (table.ids < high)
        assert (inside | ((table.ids == 0) & (table.values == 0))).all()
    offsets = [one.offset for one in encoder.fields]
    assert offsets == [1, *(one.end for one in encoder.fields[:-1])]


@given(datasets())
def test_the_order_of_rows_in_the_file_does_not_move_the_rows_of_attributes(data: Dataset) -> None:
    reversed_rows = Dataset(data.schema, data.interactions.reverse(), data.context.reverse(), data.users, data.items)
    assert fitted(reversed_rows).hash == fitted(data).hash


@given(data=datasets())
def test_saved_and_read_back_it_is_identical(data: Dataset, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("encoder") / "encoder"
    encoder = fitted(data)
    encoder.save(folder)
    again = Encoder.load(folder)
    assert again.hash == encoder.hash
    assert again.fields == encoder.fields
    assert all(one.equals(two) for one, two in zip(again.values, encoder.values, strict=True))
    assert again.user_ids.equals(encoder.user_ids)
    for part in ("user", "context", "item"):
        assert same(getattr(again.encode(data), part), getattr(encoder.encode(data), part))


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
    first = dict(zip(table.ids[0, 1:].tolist(), table.values[0, 1:].tolist(), strict=True))
    assert first == {
        tags.offset + 2: pytest.approx(1 / 3),
        tags.offset + 3: pytest.approx(1 / 3),
        tags.unknown_row: pytest.approx(1 / 3),
    }


@pytest.mark.parametrize(("weighting", "each"), [("none", 1.0), ("mean", 0.25), ("sqrt", 0.5)])
def test_a_long_set_does_not_outshout_a_short_one(weighting: str, each: float) -> None:
    items = pl.DataFrame({"i": ["x", "y"], "tags": [["p", "q", "r", "s"], ["p"]]})
    schema = {
        "interactions": {"user": "u", "item": "i"},
        "items": {"id": "i", "fields": {"tags": {"kind": "set", "weighting": weighting}}},
    }
    data = Dataset.from_tables(pl.DataFrame({"u": ["a"], "i": ["x"]}), items=items, schema=schema)
    table = fitted(data).encode(data).item
    assert table.values[0, 1:].tolist() == [each] * 4
    assert table.values[1, 1:].tolist() == [1.0, 0.0, 0.0, 0.0]


def numbers(values: list[float | None]) -> AttributeTable:
    items = pl.DataFrame({"i": [str(one) for one in range(len(values))], "n": pl.Series(values, dtype=pl.Float64)})
    schema = {"interactions": {"user": "u", "item": "i"}, "items": {"id": "i", "fields": {"n": "number"}}}
    data = Dataset.from_tables(pl.DataFrame({"u": ["a"], "i": ["0"]}), items=items, schema=schema)
    return fitted(data).encode(data).item


def test_an_outlier_does_not_move_the_scale_of_the_others() -> None:
    calm = numbers([float(one) for one in range(101)]).values[:, 1]
    wild = numbers([float(one) for one in range(100)] + [1e12]).values[:, 1]
    assert np.abs(calm[:100] - wild[:100]).max() < 0.05
    assert wild[100] == 5.0


def test_constants_infinities_and_missing_numbers() -> None:
    table = numbers([3.0, 3.0, 3.0, math.inf, -math.inf, None])
    assert table.values[:, 1].tolist() == [0.0, 0.0, 0.0, 5.0, -5.0, 1.0]
    assert table.ids[5, 1] != table.ids[0, 1]
    assert numbers([None, math.nan]).values[:, 1].tolist() == [1.0, 1.0]


@given(st.lists(st.floats(allow_nan=False) | st.none(), min_size=1, max_size=20))
def test_any_numbers_give_finite_values(values: list[float | None]) -> None:
    assert np.isfinite(numbers(values).values).all()


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


def test_a_newcomer_is_encoded_from_what_is_known_of_her() -> None:
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
