from __future__ import annotations

import pytest

from gmlfm.data.conditions import Among, Both, Compared, Contains, Either, IsNull, Like, Not, parse, quoted
from gmlfm.errors import SchemaError


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a = 1 or b = 2 and c = 3", Either((Compared("a", "=", 1), Both((Compared("b", "=", 2), Compared("c", "=", 3)))))),
        ("a = 1 and b = 2 or c = 3", Either((Both((Compared("a", "=", 1), Compared("b", "=", 2))), Compared("c", "=", 3)))),
        ("not a = 1 and b = 2", Both((Not(Compared("a", "=", 1)), Compared("b", "=", 2)))),
        ("not (a = 1 or b <> 2)", Not(Either((Compared("a", "=", 1), Compared("b", "!=", 2))))),
        ("a NOT IN (1, 2.5)", Not(Among("a", (1, 2.5)))),
        ("a in ['x']", Among("a", ("x",))),
        ("a like 'x%'", Like("a", "x%")),
        ("a not like '\\%_'", Not(Like("a", "\\%_"))),
        ("tags contains 'it\\'s'", Contains("tags", "it's")),
        ("'x' in tags", Contains("tags", "x")),
        ('"x" not in `my tags`', Not(Contains("my tags", "x"))),
        ("a is not null", Not(IsNull("a"))),
        ("`tick``ed` = .5", Compared("tick`ed", "=", 0.5)),
        ("contains contains 'a'", Contains("contains", "a")),
        ("id = 9007199254740993", Compared("id", "=", 9007199254740993)),
        ("id = " + "9" * 400, Compared("id", "=", float("inf"))),
    ],
)
def test_a_text_becomes_its_tree(text: str, tree: object) -> None:
    assert parse(text) == tree


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("stars >=", "expects a number or a text in quotes at position 9, where it ends"),
        ("stars > 3 shop = 'a'", "expects the end, 'and' or 'or' at position 11, where 'shop' stands"),
        ("__import__('os')", "expects a comparison"),
        ("stars @ 3", "cannot be read at position 6"),
        ("(stars > 3", "expects ')'"),
        ("stars in (1, 'a')", "values of one kind"),
        ("stars in ()", "expects a number or a text in quotes at position 11"),
        ("stars not = 3", "expects 'in', 'like' or 'contains' at position 11"),
        ("title like 3", "expects a text in quotes at position 12"),
        ("tags contains tags", "expects a text in quotes at position 15"),
        ("'x' = shop", "expects 'in' at position 5"),
        ("5 in stars", "expects a column's name at position 1"),
        ("shop = 'open", "cannot be read at position 7"),
        ("", "expects a column's name at position 1"),
    ],
)
def test_what_is_no_condition_is_refused_with_the_position(text: str, message: str) -> None:
    with pytest.raises(SchemaError) as caught:
        parse(text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(" * 100_000, "nests brackets and 'not' more than 50 deep"),
        ("(" * 51 + "a = 1" + ")" * 51, "nests brackets and 'not' more than 50 deep"),
        ("not " * 20_000 + "a = 1", "nests brackets and 'not' more than 50 deep"),
        (" or ".join(["a = 1"] * 1_001), "has more than 1,000 comparisons; write many values as column in"),
        ("a in (" + ",".join(["1"] * 10_002) + ")", "has more than 10,000 values"),
        ("a = '" + "x" * 100_000 + "'", "has 100,006 characters; expected 100,000 at most"),
        ("a like '" + "_" * 1_001 + "'", "has a pattern of 1,001 characters; expected 1,000 at most"),
    ],
    ids=["brackets", "just too deep", "not", "comparisons", "values", "characters", "pattern"],
)
def test_limits_are_sentences(text: str, message: str) -> None:
    with pytest.raises(SchemaError) as caught:
        parse(text)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 500


def test_within_the_limits_all_is_read() -> None:
    parse("(" * 49 + "a = 1" + ")" * 49)
    parse("not " * 49 + "a = 1")
    parse(" or ".join(["a = 1"] * 1_000))
    parse("a in (" + ",".join(["1"] * 10_000) + ")")
    parse("a like '" + "_" * 1_000 + "'")


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("price", "price"),
        ("dot.ted", "dot.ted"),
        ("Größe", "Größe"),
        ("two words", "`two words`"),
        ("7up", "`7up`"),
        ("it's", "`it's`"),
        ("tick`ed", "`tick``ed`"),
        ("Not", "`Not`"),
        ("a-b", "`a-b`"),
    ],
)
def test_a_name_is_quoted_where_it_must_be(name: str, shown: str) -> None:
    assert quoted(name) == shown
    assert parse(f"{shown} = 1") == Compared(name, "=", 1)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("Age group = '20-29'", "; a name like that goes in backticks: `Age group`."),
        ("price ($) > 3", "; a name like that goes in backticks: `price ($)`."),
        ("`Age group` = ", "where it ends."),
        ("age = ", "where it ends."),
    ],
)
def test_a_bare_odd_name_is_shown_ready_to_copy(text: str, hint: str) -> None:
    with pytest.raises(SchemaError) as caught:
        parse(text, ["Age group", "price ($)", "age", "", " "])
    assert str(caught.value).endswith(hint)
