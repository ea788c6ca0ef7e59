"""The language of conditions, such as `stars >= 4 and tags contains 'new'`: a text becomes a tree, and nothing is evaluated.

    disjunction = conjunction ('or' conjunction)*
    conjunction = term ('and' term)*
    term        = 'not' term | '(' disjunction ')' | comparison
    comparison  = column ('=' | '!=' | '<' | '<=' | '>' | '>=') value
                | column 'is' ['not'] 'null'
                | column ['not'] ('in' list | 'like' text | 'contains' text)
                | text ['not'] 'in' column
    column      = a word, or any name in backticks (a backtick in it is written twice)

Length, comparisons, values and depth have limits, so that no text exhausts the parser or what evaluates its tree.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gmlfm.errors import SchemaError

Value = int | float | str
SIGNS = {"=": "=", "==": "=", "!=": "!=", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_KEYWORDS = frozenset("and or not in is null like contains".split())
_WORD = re.compile(r"[^\W\d][\w.]*")
_TOKENS = re.compile(
    r"""\s*(?:(?P<number>-?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)
      | (?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
      | (?P<column>`(?:[^`]|``)+`)
      | (?P<word>[^\W\d][\w.]*)
      | (?P<sign><=|>=|==|!=|<>|=|<|>|\(|\)|\[|\]|,))""",
    re.VERBOSE | re.DOTALL,
)
_MOST_CHARACTERS = 100_000
_MOST_COMPARISONS = 1_000
_MOST_VALUES = 10_000
_MOST_DEPTH = 50
_LONGEST_PATTERN = 1_000
_MOST_SHOWN = 200


@dataclass(frozen=True)
class Compared:
    column: str
    sign: str
    value: Value


@dataclass(frozen=True)
class Among:
    """column in (values); of a set: whether a member is."""

    column: str
    values: tuple[int | float, ...] | tuple[str, ...]


@dataclass(frozen=True)
class Like:
    r"""column like pattern: % stands for any text, _ for one character, \ for the next character itself; of a set: a member."""

    column: str
    pattern: str


@dataclass(frozen=True)
class Contains:
    """column contains value: whether a set has this member."""

    column: str
    value: str


@dataclass(frozen=True)
class IsNull:
    column: str


@dataclass(frozen=True)
class Not:
    term: Condition


@dataclass(frozen=True)
class Both:
    """All of the terms, joined by 'and'."""

    terms: tuple[Condition, ...]


@dataclass(frozen=True)
class Either:
    """One of the terms, joined by 'or'."""

    terms: tuple[Condition, ...]


Condition = Compared | Among | Like | Contains | IsNull | Not | Both | Either


class _Token(NamedTuple):
    kind: str
    text: str
    position: int


def quoted(name: str) -> str:
    """A column's name as a condition takes it: in backticks unless it is a plain word."""
    is_plain = _WORD.fullmatch(name) is not None and name.lower() not in _KEYWORDS
    return name if is_plain else "`" + name.replace("`", "``") + "`"


def parse(text: str, names: Sequence[str] = ()) -> Condition:
    """The tree of a condition; what is none is refused with the position. names: the columns there are, for a hint."""
    return _Parser(text, names).parse()


class _Parser:
    """Recursive descent; each rule of the module's grammar is a method."""

    def __init__(self, text: str, names: Sequence[str]) -> None:
        self._text, self._names = text, names
        self._next, self._depth, self._n_comparisons, self._n_values = 0, 0, 0, 0
        if len(text) > _MOST_CHARACTERS:
            raise self._refusal(f"has {len(text):,} characters; expected {_MOST_CHARACTERS:,} at most")
        self._tokens = self._split(text)

    def parse(self) -> Condition:
        condition = self._disjunction()
        if self._next < len(self._tokens):
            raise self._error("the end, 'and' or 'or'")
        return condition

    def _disjunction(self) -> Condition:
        terms = [self._conjunction()]
        while self._take("or"):
            terms.append(self._conjunction())
        return terms[0] if len(terms) == 1 else Either(tuple(terms))

    def _conjunction(self) -> Condition:
        terms = [self._term()]
        while self._take("and"):
            terms.append(self._term())
        return terms[0] if len(terms) == 1 else Both(tuple(terms))

    def _term(self) -> Condition:
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            raise self._refusal(f"nests brackets and 'not' more than {_MOST_DEPTH} deep; write it flatter")
        term: Condition
        if self._take("not"):
            term = Not(self._term())
        elif self._take("("):
            term = self._disjunction()
            self._need(")")
        else:
            term = self._comparison()
        self._depth -= 1
        return term

    def _comparison(self) -> Condition:
        self._n_comparisons += 1
        if self._n_comparisons > _MOST_COMPARISONS:
            raise self._refusal(f"has more than {_MOST_COMPARISONS:,} comparisons; write many values as column in (...)")
        if self._peek().kind == "text":
            return self._value_in_column()
        column = self._column()
        if self._take("is"):
            negated = self._take("not")
            self._need("null")
            return Not(IsNull(column)) if negated else IsNull(column)
        negated = self._take("not")
        term: Condition
        if self._take("in"):
            term = Among(column, self._values())
        elif self._take("like"):
            term = Like(column, self._pattern())
        elif self._take("contains"):
            term = Contains(column, self._member())
        elif negated:
            raise self._error("'in', 'like' or 'contains'")
        else:
            return Compared(column, self._sign(), self._value())
        return Not(term) if negated else term

    def _value_in_column(self) -> Condition:
        value = self._member()
        negated = self._take("not")
        self._need("in")
        term = Contains(self._column(), value)
        return Not(term) if negated else term

    def _sign(self) -> str:
        token = self._peek()
        if token.kind != "sign" or token.text not in SIGNS:
            raise self._error("a comparison such as >=, =, in, like or contains")
        self._next += 1
        return SIGNS[token.text]

    def _values(self) -> tuple[int | float, ...] | tuple[str, ...]:
        closing = "]" if self._take("[") else ")"
        if closing == ")":
            self._need("(")
        values = [self._value()]
        while self._take(","):
            values.append(self._value())
            if self._n_values > _MOST_VALUES:
                raise self._refusal(f"has more than {_MOST_VALUES:,} values; use a table of ids (available) instead")
        self._need(closing)
        texts = tuple(value for value in values if isinstance(value, str))
        numbers = tuple(value for value in values if not isinstance(value, str))
        if texts and numbers:
            raise self._error("values of one kind, all texts or all numbers")
        return texts or numbers

    def _column(self) -> str:
        token = self._peek()
        if token.kind not in ("column", "word"):
            raise self._error("a column's name")
        self._next += 1
        return token.text[1:-1].replace("``", "`") if token.kind == "column" else token.text

    def _value(self) -> Value:
        token = self._peek()
        if token.kind not in ("number", "text"):
            raise self._error("a number or a text in quotes")
        self._next += 1
        self._n_values += 1
        return _unescaped(token.text) if token.kind == "text" else _number(token.text)

    def _member(self) -> str:
        return _unescaped(self._text_token())

    def _pattern(self) -> str:
        pattern = self._text_token()[1:-1]
        if len(pattern) > _LONGEST_PATTERN:
            raise self._refusal(f"has a pattern of {len(pattern):,} characters; expected {_LONGEST_PATTERN:,} at most")
        return pattern

    def _text_token(self) -> str:
        token = self._peek()
        if token.kind != "text":
            raise self._error("a text in quotes")
        self._next += 1
        return token.text

    def _peek(self) -> _Token:
        return self._tokens[self._next] if self._next < len(self._tokens) else _Token("end", "", len(self._text))

    def _take(self, expected: str) -> bool:
        token = self._peek()
        if token.kind in ("word", "sign") and token.text.lower() == expected:
            self._next += 1
            return True
        return False

    def _need(self, expected: str) -> None:
        if not self._take(expected):
            raise self._error(f"'{expected}'")

    def _split(self, text: str) -> list[_Token]:
        tokens: list[_Token] = []
        position, end = 0, len(text.rstrip())
        while position < end:
            match = _TOKENS.match(text, position)
            if match is None or match.lastgroup is None:
                raise self._refusal(f"cannot be read at position {position + 1}")
            tokens.append(_Token(match.lastgroup, match[match.lastgroup], match.start(match.lastgroup)))
            position = match.end()
        return tokens

    def _error(self, expected: str) -> SchemaError:
        token = self._peek()
        actual = "it ends" if token.kind == "end" else f"'{token.text[:_MOST_SHOWN]}' stands"
        return self._refusal(f"expects {expected} at position {token.position + 1}, where {actual}")

    def _refusal(self, problem: str) -> SchemaError:
        shown = self._text if len(self._text) <= _MOST_SHOWN else f"{self._text[:_MOST_SHOWN]}..."
        return SchemaError(f'the condition "{shown}" {problem}{self._hint()}.')

    def _hint(self) -> str:
        """A column's name that stands in the text as it is, although it must be quoted."""
        if len(self._text) > _MOST_CHARACTERS:
            return ""
        text = self._text.lower()
        bare = [name for name in self._names if quoted(name) != name and name.strip() and name.lower() in text]
        bare = [name for name in bare if quoted(name).lower() not in text]
        return f"; a name like that goes in backticks: {quoted(max(bare, key=len))}" if bare else ""


def _unescaped(token: str) -> str:
    return re.sub(r"\\(.)", r"\1", token[1:-1], flags=re.DOTALL)


def _number(text: str) -> int | float:
    """A whole number as such where 64 bits hold it: an id beyond 2^53 is not the float next to it."""
    return int(text) if re.fullmatch(r"-?\d{1,18}", text) else float(text)
