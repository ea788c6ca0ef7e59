from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gmlfm import Dataset, Encoder
from gmlfm.data.attributes import AttributeTable, Learned, lay_out, no_text
from gmlfm.errors import DataError


@pytest.mark.parametrize(("weighting", "each"), [("none", 1.0), ("mean", 0.25), ("sqrt", 0.5)])
def test_a_sets_members_share_its_weight(weighting: str, each: float) -> None:
    items = pl.DataFrame({"i": ["x", "y"], "tags": [["p", "q", "r", "s"], ["p"]]})
    schema = {
        "interactions": {"user": "u", "item": "i"},
        "items": {"id": "i", "fields": {"tags": {"kind": "set", "weighting": weighting}}},
    }
    data = Dataset.from_tables(pl.DataFrame({"u": ["a"], "i": ["x"]}), items=items, schema=schema)
    table = Encoder.fit(data, [0]).encode(data).item
    assert table.values[0, 1:].tolist() == [each] * 4
    assert table.values[1, 1:].tolist() == [1.0, 0.0, 0.0, 0.0]


def encode_numbers(values: list[float | None]) -> AttributeTable:
    items = pl.DataFrame({"i": [str(item) for item in range(len(values))], "n": pl.Series(values, dtype=pl.Float64)})
    schema = {"interactions": {"user": "u", "item": "i"}, "items": {"id": "i", "fields": {"n": "number"}}}
    data = Dataset.from_tables(pl.DataFrame({"u": ["a"], "i": ["0"]}), items=items, schema=schema)
    return Encoder.fit(data, [0]).encode(data).item


def test_an_outlier_does_not_move_the_scale_of_the_others() -> None:
    calm = encode_numbers([float(number) for number in range(101)]).values[:, 1]
    wild = encode_numbers([float(number) for number in range(100)] + [1e12]).values[:, 1]
    assert np.abs(calm[:100] - wild[:100]).max() < 0.05
    assert wild[100] == 5.0


def test_constants_enormous_and_missing_numbers() -> None:
    table = encode_numbers([3.0, 3.0, 3.0, 1e308, -1e308, None])
    assert table.values[:, 1].tolist() == [0.0, 0.0, 0.0, 5.0, -5.0, 1.0]
    assert table.ids[5, 1] != table.ids[0, 1]
    assert encode_numbers([None, math.nan]).values[:, 1].tolist() == [1.0, 1.0]


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False) | st.none(), min_size=1, max_size=20))
def test_any_numbers_give_finite_values(values: list[float | None]) -> None:
    assert np.isfinite(encode_numbers(values).values).all()


def test_fields_have_blocks_of_rows_behind_the_padding_row() -> None:
    learned = [Learned("user", "user", "id", 3, no_text()), Learned("item", "price", "number", 1, no_text())]
    user, price = lay_out(learned)
    assert (user.offset, user.unknown_row, user.missing_row, user.end) == (1, 1, 2, 6)
    assert (price.offset, price.end) == (6, 9)
    with pytest.raises(DataError, match="more than int32 can number; raise min_count"):
        lay_out([Learned("user", "user", "id", 2**31, no_text())])
