from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gmlfm.data.expressions import Columns, holds
from gmlfm.errors import SchemaError

TABLE = pl.DataFrame({"stars": [1.0, 3.0, None, 5.0], "shop": ["a", "b", None, "it's"], "two words": ["x", "y", "x", "y"]})
COLUMNS = Columns(number=lambda name: TABLE[name].cast(pl.Float64), text=lambda name: TABLE[name].cast(pl.String))


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("stars >= 3", [0, 1, 0, 1]),
        ("stars>=3 and shop != 'b'", [0, 0, 0, 1]),
        ("stars = 1 or shop == 'b'", [1, 1, 0, 0]),
        ("not stars < 3", [0, 1, 0, 1]),
        ("not (stars < 3 or stars > 4)", [0, 1, 0, 0]),
        ("stars = 1 or stars = 3 and shop = 'zzz'", [1, 0, 0, 0]),
        ("stars in (1, 5)", [1, 0, 0, 1]),
        ("shop not in ['a', 'b']", [0, 0, 0, 1]),
        ("shop is null", [0, 0, 1, 0]),
        ("shop is not null AND stars <> 5", [1, 1, 0, 0]),
        ("shop = 'it\\'s'", [0, 0, 0, 1]),
        ('`two words` = "x"', [1, 0, 1, 0]),
        ("stars > -1e0", [1, 1, 0, 1]),
    ],
)
def test_conditions_hold_where_they_should(condition: str, expected: list[int]) -> None:
    assert holds(condition, COLUMNS).to_list() == [bool(value) for value in expected]


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("stars >=", "expects a number or a text in quotes at position 9, where it ends"),
        ("stars > 3 shop = 'a'", "expects the end, 'and' or 'or' at position 11, where 'shop' stands"),
        ("__import__('os')", "expects a comparison"),
        ("stars @ 3", "cannot be read at position 6"),
        ("(stars > 3", "expects ')'"),
        ("stars in (1, 'a')", "values of one kind"),
        ("", "expects a column's name at position 1"),
    ],
)
def test_what_is_no_condition_is_refused_with_the_position(condition: str, message: str) -> None:
    with pytest.raises(SchemaError) as caught:
        holds(condition, COLUMNS)
    assert message in str(caught.value)


@given(st.text(alphabet="stars hop()<>=!'\"1 andornti,[]`\\.", max_size=30))
def test_any_text_is_a_condition_or_refused(condition: str) -> None:
    columns = Columns(number=lambda _: TABLE["stars"], text=lambda _: TABLE["shop"])
    try:
        assert len(holds(condition, columns)) == 4
    except SchemaError:
        pass
