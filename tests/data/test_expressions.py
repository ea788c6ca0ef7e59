from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gmlfm.data.columns import Origin
from gmlfm.data.expressions import Columns, holds, like_regex
from gmlfm.data.schema import Field
from gmlfm.errors import DataError, SchemaError
from tests.data.slow_conditions import Drawn, conditions, is_like, tables

TABLE = pl.DataFrame(
    {
        "stars": [1.0, 3.0, None, 5.0],
        "shop": ["a", "b", None, "it's"],
        "two words": ["x", "y", "x", "y"],
        "tags": [["new", "red"], [], None, ["red", "old"]],
        "big": [9007199254740992, 9007199254740993, None, -1],
        "hash": pl.Series([2**63 + 5, 1, None, 7], dtype=pl.UInt64),
        "genre": ["Rock", "Pop", "rock", None],
    }
)
COLUMNS = Columns.of(TABLE, Origin("the table"), "filter")


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("stars >= 3", [0, 1, 0, 1]),
        ("stars>=3 and shop != 'b'", [0, 0, 0, 1]),
        ("stars = 1 or shop == 'b'", [1, 1, 0, 0]),
        ("not stars < 3", [0, 1, 0, 1]),
        ("not (stars < 3 or stars > 4)", [0, 1, 0, 0]),
        ("stars = 1 or stars = 3 and shop = 'zzz'", [1, 0, 0, 0]),
        ("shop = 'zzz' and stars = 1 or stars = 3", [0, 1, 0, 0]),
        ("stars in (1, 5)", [1, 0, 0, 1]),
        ("stars in (1, 5.0)", [1, 0, 0, 1]),
        ("shop not in ['a', 'b']", [0, 0, 0, 1]),
        ("shop is null", [0, 0, 1, 0]),
        ("shop is not null AND stars <> 5", [1, 1, 0, 0]),
        ("shop = 'it\\'s'", [0, 0, 0, 1]),
        ('`two words` = "x"', [1, 0, 1, 0]),
        ("stars > -1e0", [1, 1, 0, 1]),
        ("tags contains 'red'", [1, 0, 0, 1]),
        ("not tags contains 'red'", [0, 1, 0, 0]),
        ("'new' in tags", [1, 0, 0, 0]),
        ("'red' not in tags", [0, 1, 0, 0]),
        ("tags in ('new', 'old')", [1, 0, 0, 1]),
        ("tags not in ('new', 'old')", [0, 1, 0, 0]),
        ("tags like '%e_'", [1, 0, 0, 1]),
        ("tags is null", [0, 0, 1, 0]),
        ("genre like 'R%'", [1, 0, 0, 0]),
        ("genre like '%o%'", [1, 1, 1, 0]),
        ("genre not like '____'", [0, 1, 0, 0]),
        ("big = 9007199254740993", [0, 1, 0, 0]),
        ("big in (9007199254740992, -1)", [1, 0, 0, 1]),
        ("big < 0.5", [0, 0, 0, 1]),
        ("hash > -1", [1, 1, 0, 1]),
        ("hash in (1, 2)", [0, 1, 0, 0]),
        ("stars < " + "9" * 400, [1, 1, 0, 1]),
        ("big < " + "9" * 50, [1, 1, 0, 1]),
    ],
)
def test_conditions_hold_where_they_should(condition: str, expected: list[int]) -> None:
    assert holds(condition, COLUMNS).to_list() == [bool(value) for value in expected]


@settings(max_examples=5 * settings().max_examples)
@given(tables, conditions)
def test_it_is_what_each_row_says_by_itself(table: pl.DataFrame, drawn: Drawn) -> None:
    condition, meaning = drawn
    actual = holds(condition, Columns.of(table, Origin("the table"), "filter")).to_list()
    assert actual == [meaning(row) is True for row in table.to_dicts()], condition


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("tags = 'x'", "tags is a set, which = cannot compare; write tags contains 'x'"),
        ("tags < 3", "tags is a set, which < cannot compare"),
        ("tags in (1, 2)", "tags is a set of texts; write its values in quotes"),
        (
            "shop contains 'x'",
            "shop is no set, so it contains nothing; write shop = 'x', or shop like '%x%' for a part of a text",
        ),
        ("'x' in `two words`", "`two words` is no set, so it contains nothing; write `two words` = 'x'"),
        ("stars contains '5'", "stars is no set"),
        ("stars < 'abc'", "stars is a number, which no text can be compared with; write stars < 5, no quotes"),
        ("stars = '5'", "stars is a number"),
        ("stars in ('5', '6')", "stars is a number"),
        ("stars like '5%'", "stars is a number"),
        ("starz < 5", "the table has no column 'starz', which filter names; did you mean 'stars'?"),
        ("`two wrds` = 'x'", "did you mean `two words`?"),
        ("nothing = 'x'", "; known: stars, shop, `two words`, tags, big, hash, genre."),
        ("two words = 'x'", "; a name like that goes in backticks: `two words`."),
        ("shop = '\ud800'", "holds half of a surrogate pair"),
    ],
)
def test_what_a_column_cannot_be_asked_is_one_sentence(condition: str, message: str) -> None:
    with pytest.raises(SchemaError) as caught:
        holds(condition, COLUMNS)
    assert message in str(caught.value)


def test_texts_are_numbers_where_all_of_them_can_be() -> None:
    table = pl.DataFrame({"n": ["1", " 2,5", None], "word": ["1", "x", "3"]})
    columns = Columns.of(table, Origin("t.csv"), "positive", decimal=",")
    assert holds("n > 1", columns).to_list() == [False, True, False]
    assert holds("n = '1'", columns).to_list() == [True, False, False]
    with pytest.raises(DataError, match=r"t\.csv row 2: column 'word' holds 'x' where a number was expected"):
        holds("word > 1", columns)


def test_a_declared_field_says_what_a_column_is() -> None:
    table = pl.DataFrame({"mood": ["calm|busy", "", None], "size": ["1", "2", "10"]})
    fields = (Field("mood", "set", separator="|"), Field("size", "number"))
    columns = Columns.of(table, Origin("t.csv"), "positive", None, fields)
    assert holds("mood contains 'busy'", columns).to_list() == [True, False, False]
    assert holds("not mood contains 'busy'", columns).to_list() == [False, True, False]
    assert holds("size < 5", columns).to_list() == [True, True, False]
    with pytest.raises(SchemaError, match="size is a number"):
        holds("size < '5'", columns)


def test_without_kinds_the_value_decides() -> None:
    columns = Columns(number=lambda name: TABLE[name], text=lambda name: TABLE[name].cast(pl.String))
    assert holds("stars >= 3 and shop != 'b'", columns).to_list() == [False, False, False, True]
    with pytest.raises(SchemaError, match="is no set"):
        holds("tags contains 'a'", columns)


@given(st.text("ab%_\\.*[日\n", max_size=6), st.text("ab%_\\.*[日\n", max_size=5))
def test_like_is_what_it_says_character_by_character(text: str, pattern: str) -> None:
    if pattern.count("\\") and pattern.rstrip("\\") != pattern and (len(pattern) - len(pattern.rstrip("\\"))) % 2:
        pattern += "\\"  # a text in quotes cannot end within an escape
    assert pl.Series([text]).str.contains(like_regex(pattern)).to_list() == [is_like(text, pattern)]


@given(st.text(alphabet="stars hop()<>=!'\"1 andornti,[]`\\.likecotag%_", max_size=40))
def test_any_text_is_a_condition_or_refused(condition: str) -> None:
    try:
        assert len(holds(condition, COLUMNS)) == 4
    except (SchemaError, DataError):
        pass
