"""Conditions evaluated over columns: a Boolean for each row, in three-valued logic as in SQL.

A comparison with a missing value is neither true nor false, nor is its negation; `and` and `or` know what they can know
(false and unknown is false, true or unknown is true). In the end only what is true holds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import reduce
from typing import Literal

import polars as pl

from gmlfm.data.columns import Origin, as_number, as_set, as_text
from gmlfm.data.conditions import Among, Both, Compared, Condition, Contains, Either, IsNull, Like, Not, parse, quoted
from gmlfm.data.schema import Field
from gmlfm.errors import SchemaError

ColumnKind = Literal["text", "number", "set"]
_COMPARE: dict[str, Callable[[pl.Series, int | float | str], pl.Series]] = {
    "=": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}


@dataclass(frozen=True)
class Columns:
    """How a condition gets at its columns: as numbers where it compares with a number, as text with a text, as sets of members.

    kind: what a column is; without it whatever it is compared with decides. names: all columns, for hints.
    """

    number: Callable[[str], pl.Series]
    text: Callable[[str], pl.Series]
    members: Callable[[str], pl.Series] | None = None
    kind: Callable[[str], ColumnKind | None] = lambda _: None
    names: Sequence[str] = ()

    @classmethod
    def of(
        cls, table: pl.DataFrame, origin: Origin, needed_for: str, decimal: str | None = None, fields: Sequence[Field] = ()
    ) -> Columns:
        """A table's columns, each of the kind that its type or, where it is declared, its field says."""
        declared = {field.name: field for field in fields}

        def values(name: str) -> pl.Series:
            if name not in table.columns:
                raise SchemaError(
                    f"{origin.name} has no column '{name}', which {needed_for} names{_names_hint(name, table.columns)}"
                )
            return table[name]

        def kind(name: str) -> ColumnKind:
            dtype = values(name).dtype
            if isinstance(dtype, pl.List | pl.Array) or (name in declared and declared[name].kind == "set"):
                return "set"
            return "number" if dtype.is_numeric() or (name in declared and declared[name].kind == "number") else "text"

        def number(name: str) -> pl.Series:
            column = values(name)
            if column.dtype.is_integer():  # as they are: beyond 2^53 a float does not tell them apart
                return column.cast(pl.Int128 if column.dtype in (pl.UInt64, pl.UInt128, pl.Int128) else pl.Int64)
            return as_number(column, origin, decimal)

        return cls(
            number=number,
            text=lambda name: as_text(values(name), origin),
            members=lambda name: as_set(values(name), declared.get(name, Field(name, "set")), origin),
            kind=kind,
            names=table.columns,
        )


def holds(condition: str, columns: Columns) -> pl.Series:
    """A Boolean for each row: whether the condition is true of it."""
    try:
        condition.encode()
    except UnicodeEncodeError:
        raise SchemaError(f'the condition "{condition}" holds half of a surrogate pair, which is no character.') from None
    return _Evaluation(condition, columns).of(parse(condition, columns.names)).fill_null(False)


@dataclass(frozen=True)
class _Evaluation:
    condition: str
    columns: Columns

    def of(self, term: Condition) -> pl.Series:
        """True, false or, for unknown, null."""
        match term:
            case Not(inner):
                return ~self.of(inner)
            case Both(terms):
                return reduce(lambda left, right: left & right, map(self.of, terms))
            case Either(terms):
                return reduce(lambda left, right: left | right, map(self.of, terms))
            case IsNull(name):
                return self._present(name).is_null()
            case Compared(name, sign, value):
                if self.columns.kind(name) == "set":
                    raise self._refusal(name, f"is a set, which {sign} cannot compare; write {quoted(name)} contains 'x'")
                column = self._texts(name) if isinstance(value, str) else self.columns.number(name)
                return _COMPARE[sign](column, value)
            case Among(name, values):
                return self._among(name, values)
            case Like(name, pattern):
                return self._like(name, pattern)
            case Contains(name, member):
                if self.columns.kind(name) not in (None, "set") or self.columns.members is None:
                    remedy = f"write {quoted(name)} = 'x', or {quoted(name)} like '%x%' for a part of a text"
                    raise self._refusal(name, f"is no set, so it contains nothing; {remedy}")
                return self.columns.members(name).list.contains(member)

    def _among(self, name: str, values: tuple[int | float, ...] | tuple[str, ...]) -> pl.Series:
        is_text = isinstance(values[0], str)
        if self.columns.kind(name) == "set":
            if not is_text:
                raise self._refusal(name, "is a set of texts; write its values in quotes")
            return self._members(name).list.eval(pl.element().is_in(values)).list.any()
        if is_text:
            return self._texts(name).is_in(values)
        numbers = self.columns.number(name)
        if not all(isinstance(value, int) for value in values):
            numbers = numbers.cast(pl.Float64)
        return numbers.is_in(pl.Series(values, dtype=numbers.dtype, strict=False).implode())

    def _like(self, name: str, pattern: str) -> pl.Series:
        regex = like_regex(pattern)
        try:
            if self.columns.kind(name) == "set":
                return self._members(name).list.eval(pl.element().str.contains(regex)).list.any()
            return self._texts(name).str.contains(regex)
        except pl.exceptions.ComputeError:
            raise self._refusal(name, f"is compared with the pattern '{pattern}', which is too long") from None

    def _present(self, name: str) -> pl.Series:
        return self._members(name) if self.columns.kind(name) == "set" else self.columns.text(name)

    def _members(self, name: str) -> pl.Series:
        assert self.columns.members is not None
        return self.columns.members(name)

    def _texts(self, name: str) -> pl.Series:
        if self.columns.kind(name) == "number":
            raise self._refusal(name, f"is a number, which no text can be compared with; write {quoted(name)} < 5, no quotes")
        return self.columns.text(name)

    def _refusal(self, name: str, problem: str) -> SchemaError:
        shown = self.condition if len(self.condition) <= 200 else f"{self.condition[:200]}..."
        return SchemaError(f'in the condition "{shown}", {quoted(name)} {problem}.')


def like_regex(pattern: str) -> str:
    r"""A pattern of `like` as a regular expression over a whole text; upper and lower case differ, as they do for `=`."""
    parts = []
    for element in re.findall(r"\\.|.", pattern, flags=re.DOTALL):
        parts.append({"%": ".*", "_": "."}.get(element) or re.escape(element[-1]))
    return f"(?s)^{''.join(parts)}$"


def _names_hint(name: str, names: Sequence[str]) -> str:
    """As did_you_mean, with odd names in the backticks that a condition needs."""
    by_case = {choice.lower(): choice for choice in names}
    close = get_close_matches(name.lower(), by_case, n=1, cutoff=0.6)
    if close:
        choice = by_case[close[0]]
        return f"; did you mean {repr(choice) if quoted(choice) == choice else quoted(choice)}?"
    shown = ", ".join(map(quoted, names[:20])) + (", ..." if len(names) > 20 else "")
    return f"; known: {shown}." if names else "."
