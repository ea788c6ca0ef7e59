"""Conditions with their meaning: each text that is drawn comes with a function that tells, row by row, what it says."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
from hypothesis import strategies as st

from gmlfm.data.conditions import quoted

Row = dict[str, Any]
Meaning = Callable[[Row], bool | None]
Drawn = tuple[str, Meaning]

# Names that a condition takes as they are, and names that it takes in backticks.
TEXTS = ("shop", "two words", "dot.ted", "it's", "tick`ed", "not", "7up")
NUMBERS = ("stars", "price ($)")
SETS = ("tags", "Tag set")
_WORDS = ["a", "ab", "A", "b", "", "it's", "100%", "a_b", "\\", '"', "日本", "line\nend", "🦆"]
_SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
words = st.one_of(st.sampled_from(_WORDS[:4]), st.sampled_from(_WORDS))
numbers = st.one_of(st.integers(-3, 5), st.sampled_from([0.5, -0.25, 1e3]))


def table_of(seed: int, n_rows: int = 60) -> pl.DataFrame:
    """A table with all columns; any cell may be missing, a set may be empty."""
    rng = np.random.default_rng(seed)

    def cells(make: Callable[[], Any]) -> list[Any]:
        return [None if rng.random() < 0.2 else make() for _ in range(n_rows)]

    def word() -> str:
        return _WORDS[rng.integers(len(_WORDS) if rng.random() < 0.3 else 4)]

    columns = [pl.Series(name, cells(word), dtype=pl.String) for name in TEXTS]
    columns += [pl.Series(name, cells(lambda: float(rng.integers(-3, 6))), dtype=pl.Float64) for name in NUMBERS]
    sets = [cells(lambda: list(dict.fromkeys(word() for _ in range(rng.integers(4))))) for _ in SETS]
    columns += [pl.Series(name, lists, dtype=pl.List(pl.String)) for name, lists in zip(SETS, sets, strict=True)]
    return pl.DataFrame(columns)


tables = st.integers(0, 50).map(table_of)


def literal(text: str, draw: st.DrawFn) -> str:
    mark = draw(st.sampled_from("'\""))
    return mark + text.replace("\\", "\\\\").replace(mark, f"\\{mark}") + mark


def is_like(text: str, pattern: str) -> bool:
    r"""% any text, _ one character, \x the character x."""
    if not pattern:
        return not text
    if pattern[0] == "%":
        return any(is_like(text[place:], pattern[1:]) for place in range(len(text) + 1))
    if pattern[0] == "_":
        return bool(text) and is_like(text[1:], pattern[1:])
    length = 2 if pattern[0] == "\\" else 1
    return text[:1] == pattern[length - 1] and is_like(text[1:], pattern[length:])


def negated(meaning: Meaning) -> Meaning:
    def said(row: Row) -> bool | None:
        value = meaning(row)
        return None if value is None else not value

    return said


def of_value(name: str, test: Callable[[Any], bool]) -> Meaning:
    return lambda row: None if row[name] is None else test(row[name])


def of_members(name: str, test: Callable[[str], bool]) -> Meaning:
    return lambda row: None if row[name] is None else any(test(member) for member in row[name])


def both(left: bool | None, right: bool | None) -> bool | None:
    if left is False or right is False:
        return False
    return None if left is None or right is None else True


def either(left: bool | None, right: bool | None) -> bool | None:
    if left is True or right is True:
        return True
    return None if left is None or right is None else False


@st.composite
def comparisons(draw: st.DrawFn) -> Drawn:
    kind = draw(st.sampled_from(["compare", "in", "like", "contains", "value in", "null"]))
    neither = draw(st.booleans())
    no = "not " if neither else ""
    if kind == "compare":
        name = draw(st.sampled_from(TEXTS + NUMBERS))
        sign = draw(st.sampled_from(sorted(_SIGNS)))
        value: Any = draw(words if name in TEXTS else numbers)
        shown = literal(value, draw) if name in TEXTS else str(value)
        return f"{quoted(name)}{draw(st.sampled_from(['', ' ']))}{sign} {shown}", of_value(
            name, lambda cell: _SIGNS[sign](cell, value)
        )
    name = draw(st.sampled_from(TEXTS + SETS if kind in ("like", "in") else TEXTS + NUMBERS + SETS if kind == "null" else SETS))
    over = of_members if name in SETS else of_value
    meaning: Meaning
    if kind == "null":
        meaning = lambda row: row[name] is None  # noqa: E731
        return f"{quoted(name)} is {no}null", negated(meaning) if neither else meaning
    if kind == "in":
        values = draw(st.lists(words, min_size=1, max_size=3))
        listed = ", ".join(literal(value, draw) for value in values)
        brackets = draw(st.sampled_from(["()", "[]"]))
        text, meaning = f"{quoted(name)} {no}in {brackets[0]}{listed}{brackets[1]}", over(name, lambda cell: cell in values)
    elif kind == "like":
        elements = st.sampled_from(["%", "_", "a", "b", "A", "\\%", "\\_", "\\\\", "日", "100", ".", "*"])
        pattern = "".join(draw(st.lists(elements, max_size=4)))
        text, meaning = f"{quoted(name)} {no}like '{pattern}'", over(name, lambda cell: is_like(cell, pattern))
    else:
        member = draw(words)
        shown = literal(member, draw)
        text = f"{quoted(name)} {no}contains {shown}" if kind == "contains" else f"{shown} {no}in {quoted(name)}"
        meaning = of_members(name, lambda cell: cell == member)
    return text, negated(meaning) if neither else meaning


def _joined(children: st.SearchStrategy[Drawn]) -> st.SearchStrategy[Drawn]:
    """'and' binds more than 'or', 'not' more than both: what binds less is in brackets."""

    def in_brackets(drawn: Drawn) -> Drawn:
        return f"({drawn[0]})", drawn[1]

    def not_(drawn: Drawn) -> Drawn:
        return f"not {drawn[0]}", negated(drawn[1])

    def and_(left: Drawn, right: Drawn) -> Drawn:
        return f"{left[0]} and {right[0]}", lambda row: both(left[1](row), right[1](row))

    def or_(left: Drawn, right: Drawn) -> Drawn:
        return f"{left[0]} OR {right[0]}", lambda row: either(left[1](row), right[1](row))

    terms = comparisons() | children.map(in_brackets)
    terms = terms | terms.map(not_)
    conjunctions = st.one_of(terms, st.builds(and_, terms, terms), st.builds(and_, terms, terms))
    return st.one_of(st.builds(or_, conjunctions, conjunctions), conjunctions)


conditions: st.SearchStrategy[Drawn] = st.one_of(_joined(_joined(comparisons())), _joined(comparisons()), comparisons())
