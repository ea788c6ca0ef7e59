"""Conditions that people write in text, such as `stars >= 4 and shop != 'test'`: parsed, never evaluated as code."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import polars as pl

from gmlfm.errors import SchemaError

_TOKENS = re.compile(
    r"""\s*(?:(?P<number>-?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)
      | (?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
      | (?P<column>`[^`]+`)
      | (?P<word>[^\W\d][\w.]*)
      | (?P<sign><=|>=|==|!=|<>|=|<|>|\(|\)|\[|\]|,))""",
    re.VERBOSE,
)
_COMPARE: dict[str, Callable[[pl.Series, float | str], pl.Series]] = {
    "=": lambda left, right: left == right,
    "==": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
    "<>": lambda left, right: left != right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}


@dataclass(frozen=True)
class Columns:
    """How a condition gets at its columns: as numbers where it compares with a number, otherwise as text."""

    number: Callable[[str], pl.Series]
    text: Callable[[str], pl.Series]


def holds(condition: str, columns: Columns) -> pl.Series:
    """A Boolean for each row. A comparison with a missing value does not hold, nor does its negation."""
    parser = _Parser(condition, columns)
    result = parser.disjunction()
    parser.expect_end()
    return result.fill_null(False)


class _Parser:
    """Recursive descent; each rule below is a method.

    disjunction = conjunction ('or' conjunction)*
    conjunction = term ('and' term)*
    term = 'not' term | '(' disjunction ')' | comparison
    """

    def __init__(self, condition: str, columns: Columns) -> None:
        self._condition = condition
        self._columns = columns
        self._tokens = self._split(condition)
        self._next = 0

    def disjunction(self) -> pl.Series:
        result = self._conjunction()
        while self._take("or"):
            result = result | self._conjunction()
        return result

    def expect_end(self) -> None:
        if self._next < len(self._tokens):
            raise self._error("the end, 'and' or 'or'")

    def _conjunction(self) -> pl.Series:
        result = self._term()
        while self._take("and"):
            result = result & self._term()
        return result

    def _term(self) -> pl.Series:
        if self._take("not"):
            return ~self._term()
        if self._take("("):
            result = self.disjunction()
            self._need(")")
            return result
        return self._comparison()

    def _comparison(self) -> pl.Series:
        name = self._column()
        if self._take("is"):
            negated = self._take("not")
            self._need("null")
            present = self._columns.text(name).is_not_null()
            return present if negated else ~present
        negated = self._take("not")
        if self._take("in"):
            is_among = self._among(name)
            return ~is_among if negated else is_among
        if negated:
            raise self._error("'in'")
        kind, sign = self._peek()
        if kind != "sign" or sign not in _COMPARE:
            raise self._error("a comparison such as >=, = or !=")
        self._next += 1
        value = self._value()
        column = self._columns.text(name) if isinstance(value, str) else self._columns.number(name)
        return _COMPARE[sign](column, value)

    def _among(self, name: str) -> pl.Series:
        closing = "]" if self._take("[") else ")"
        if closing == ")":
            self._need("(")
        values = [self._value()]
        while self._take(","):
            values.append(self._value())
        self._need(closing)
        if all(isinstance(value, str) for value in values):
            return self._columns.text(name).is_in(values)
        if any(isinstance(value, str) for value in values):
            raise self._error("values of one kind, all texts or all numbers")
        return self._columns.number(name).is_in(values)

    def _column(self) -> str:
        kind, text = self._peek()
        if kind == "column":
            self._next += 1
            return text[1:-1]
        if kind == "word":
            self._next += 1
            return text
        raise self._error("a column's name")

    def _value(self) -> float | str:
        kind, text = self._peek()
        if kind == "number":
            self._next += 1
            return float(text)
        if kind == "text":
            self._next += 1
            return re.sub(r"\\(.)", r"\1", text[1:-1])
        raise self._error("a number or a text in quotes")

    def _peek(self) -> tuple[str, str]:
        if self._next >= len(self._tokens):
            return "end", ""
        kind, text, _ = self._tokens[self._next]
        return kind, text

    def _take(self, expected: str) -> bool:
        kind, text = self._peek()
        if kind in ("word", "sign") and text.lower() == expected:
            self._next += 1
            return True
        return False

    def _need(self, expected: str) -> None:
        if not self._take(expected):
            raise self._error(f"'{expected}'")

    def _split(self, condition: str) -> list[tuple[str, str, int]]:
        tokens = []
        position = 0
        end = len(condition.rstrip())
        while position < end:
            match = _TOKENS.match(condition, position)
            if match is None or match.lastgroup is None:
                raise SchemaError(f'the condition "{condition}" cannot be read at position {position + 1}.')
            tokens.append((match.lastgroup, match[match.lastgroup], match.start(match.lastgroup)))
            position = match.end()
        return tokens

    def _error(self, expected: str) -> SchemaError:
        is_end = self._next >= len(self._tokens)
        position = len(self._condition) if is_end else self._tokens[self._next][2]
        actual = "it ends" if is_end else f"'{self._tokens[self._next][1]}' stands"
        return SchemaError(f'the condition "{self._condition}" expects {expected} at position {position + 1}, where {actual}.')
