"""What a column looks like: a key, a time, a number, a set, a category, web addresses, or text for people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import polars as pl

from gmlfm.data.atomic import AtomicType
from gmlfm.data.column_words import CODE_WORDS, NUMBER_WORDS, TIME_WORDS, words_of
from gmlfm.data.columns import Origin, as_text
from gmlfm.data.times import ambiguous_date, as_times
from gmlfm.errors import GmlfmError

Looks = Literal["empty", "constant", "time", "number", "set", "category", "text", "key", "address"]

WEB_ADDRESS = r"(?i)^\s*(?:https?://|ftp://|www\.)\S+"
_SET_SEPARATORS = ("|", ";", ",")
_NESTED = r"(?s)^\{.*\}$"
_SAMPLE = 5_000
_ALMOST = 0.9  # of the values occur once
_FEWEST_VALUES = 20  # fewer say nothing about how often a value occurs
_FEW_STRAYS = 0.02  # of the values are texts in a column of numbers
_MOST_CATEGORIES = 1_000  # of a column of numbers with strays
DECIMALS = "numbers with decimals"
_LONGEST_SET = 1_000  # characters on average; longer ones are texts
_ENTITY = r"&#?\w+;"  # as in "Simon &amp; Schuster", whose semicolon separates nothing
_FIRST_MOMENT, _LAST_MOMENT = 6e8, 2.2e9  # seconds since 1970, of 1989 and 2039
_DECIMAL_COMMA = r"^\s*-?\d+(,\d+)?\s*$"


@dataclass(frozen=True)
class Profile:
    """A column's look and the reason for it, in words that are shown to people."""

    name: str
    looks: Looks
    reason: str
    n_rows: int
    n_distinct: int
    separator: str | None = None
    decimal_comma: bool = False
    mean_length: float = 0.0  # characters, of a text
    declared: AtomicType | None = None

    @property
    def unique(self) -> bool:
        return self.n_distinct == self.n_rows

    @property
    def words(self) -> set[str]:
        return words_of(self.name if self.declared is None else self.name.removesuffix(f":{self.declared}"))


class _Look(NamedTuple):
    looks: Looks
    reason: str
    separator: str | None = None
    decimal_comma: bool = False
    mean_length: float = 0.0


def profile(values: pl.Series, declared: AtomicType | None = None) -> Profile:
    """Look at a column; `declared` is the type that an atomic file gives it."""
    present = values.drop_nulls()
    countable = not isinstance(values.dtype, (pl.List, pl.Array, pl.Struct)) and values.dtype != pl.Object
    n_distinct = present.n_unique() if countable else 0
    look = _look(values, present, n_distinct, declared)
    n_missing = len(values) - len(present)
    missing = f", {n_missing / len(values):.0%} missing" if n_missing else ""
    reason = look.reason + missing
    return Profile(
        values.name,
        look.looks,
        reason,
        len(values),
        n_distinct,
        look.separator,
        look.decimal_comma,
        look.mean_length,
        declared,
    )


def _look(values: pl.Series, present: pl.Series, n_distinct: int, declared: AtomicType | None) -> _Look:
    if len(present) == 0:
        return _Look("empty", "no value at all")
    if isinstance(values.dtype, (pl.List, pl.Array)):
        return _Look("set", "lists")
    if values.dtype in (pl.Binary, pl.Object) or isinstance(values.dtype, pl.Struct):
        return _Look("text", f"holds {values.dtype}")
    if n_distinct == 1 and len(present) < len(values):
        return _Look("category", f"{str(present[0])[:30]!r} or nothing")
    if n_distinct == 1:
        return _Look("constant", f"always {str(present[0])[:30]!r}")
    if values.dtype.is_temporal():
        return _Look("time", "holds dates")
    if values.dtype == pl.Boolean:
        return _Look("category", "true or false")
    text = as_text(present, Origin(values.name)).str.strip_chars()
    if declared is not None:
        return _as_declared(values, text, n_distinct, declared)
    numbers = text.cast(pl.Float64, strict=False)
    if numbers.null_count() == 0:
        return _numeric(words_of(values.name), text.head(_SAMPLE), numbers, n_distinct, len(values))
    if _measures(words_of(values.name), numbers) and numbers.null_count() <= _FEW_STRAYS * len(numbers):
        return _with_strays(text, numbers.is_null(), n_distinct)
    if has_decimal_comma(text):
        return _Look("number", "numbers with a decimal comma", decimal_comma=True)
    sample = text.head(_SAMPLE)
    if has_decimal_comma(sample):
        return _with_strays(text, ~text.str.contains(_DECIMAL_COMMA), n_distinct)
    reason = _date_reason(sample)
    if reason:
        is_whole = len(sample) == len(text) or _date_reason(text)
        return _Look("time", reason) if is_whole else _Look("text", "dates in its first rows, but not in all")
    if _mean(sample.str.contains(WEB_ADDRESS)) > 0.8:
        return _Look("address", "web addresses: not for training")
    if _mean(sample.str.contains(_NESTED)) > 0.8:
        return _Look("text", "nested objects: not for training")
    separator = _set_separator(sample)
    if separator:
        return _Look("set", f"several values separated by '{separator}'", separator)
    return _textual(sample, n_distinct, len(text), len(values))


def has_decimal_comma(text: pl.Series) -> bool:
    """Whether texts are numbers such as 13,40."""
    return bool(text.str.contains(_DECIMAL_COMMA).all()) and not _few_whole(text)


def _as_declared(values: pl.Series, text: pl.Series, n_distinct: int, declared: AtomicType) -> _Look:
    """What an atomic file says of its column goes before what its values look like."""
    mark = f"RecBole's {declared}"
    if declared == "float_seq":
        return _Look("text", f"{mark}: lists of numbers are not trained on")
    if declared == "token_seq":
        return _Look("set", f"{mark}: several values separated by spaces", " ")
    if declared == "token":
        look = _textual(text.head(_SAMPLE), n_distinct, len(text), len(values))
        return look._replace(reason=f"{mark}: {look.reason}")
    numbers = text.cast(pl.Float64, strict=False)
    if numbers.null_count():
        return _Look("text", f"{mark}, but {text.filter(numbers.is_null())[0][:30]!r} is no number")
    words = words_of(values.name.removesuffix(f":{declared}"))
    look = _numeric(words, text.head(_SAMPLE), numbers, n_distinct, len(values))
    return look if look.looks == "time" else _Look("number", f"{mark}: {_range(numbers)}")


def _measures(words: set[str], numbers: pl.Series) -> bool:
    """Whether numbers count or measure something, by the column's name or by decimals; others may be ids."""
    return bool(words & NUMBER_WORDS and "id" not in words) or not bool((numbers % 1 == 0).all())


def _range(numbers: pl.Series) -> str:
    return f"from {float(numbers.min()):g} to {float(numbers.max()):g}"  # type: ignore[arg-type]


def _with_strays(text: pl.Series, is_stray: pl.Series, n_distinct: int) -> _Look:
    """Numbers but for a few texts, as rows whose cells have slipped to the side: as numbers they could not be read."""
    strays = text.filter(is_stray)
    reason = f"numbers but for {len(strays):,} text(s) such as {strays[0][:30]!r}"
    if n_distinct <= _MOST_CATEGORIES:
        return _Look("category", f"{reason}: taken as {n_distinct:,} categories; mend them to have a number")
    return _Look("text", f"{reason}: mend them to have a number")


def _numeric(words: set[str], text: pl.Series, numbers: pl.Series, n_distinct: int, n_rows: int) -> _Look:
    unique = n_distinct == n_rows
    lowest, highest = float(numbers.min()), float(numbers.max())  # type: ignore[arg-type]
    if words & TIME_WORDS and (1e8 < lowest < 2e16 or text.str.contains(r"^(19|20)\d{6}$").all()):
        return _Look("time", "whole numbers that read as moments")
    if _is_made_up(words) and _FIRST_MOMENT < lowest and highest < _LAST_MOMENT:
        return _Look("time", "whole numbers that read as moments")
    if bool(text.str.contains(r"^0\d").any()):
        rare = unique or _almost_unique(n_distinct, len(numbers))
        return _Look("key" if rare else "category", "digits with leading zeros: a code, not a number")
    if not bool((numbers % 1 == 0).all()):
        return _Look("number", DECIMALS)
    if _measures(words, numbers):
        return _Look("number", f"whole numbers {_range(numbers)}")
    if unique:
        return _Look("key", "whole numbers, each once")
    if words & CODE_WORDS and _almost_unique(n_distinct, len(numbers)):
        return _Look("key", f"{n_distinct:,} different codes, almost each once")
    if words & CODE_WORDS or n_distinct <= 50:
        return _Look("category", f"{n_distinct:,} different whole numbers: taken as codes")
    return _Look("number", f"whole numbers {_range(numbers)}")


def _is_made_up(words: set[str]) -> bool:
    """Whether a name is one that says nothing, as columns of a file without a header have it."""
    return "column" in words and all(word == "column" or word.isdigit() for word in words)


def _almost_unique(n_distinct: int, n_present: int) -> bool:
    return n_present >= _FEWEST_VALUES and n_distinct >= _ALMOST * n_present


def _textual(text: pl.Series, n_distinct: int, n_present: int, n_rows: int) -> _Look:
    """By a sample of the texts, and how many values of the whole column are different."""
    length = _mean(text.str.len_chars())
    spaced = _mean(text.str.contains(" "))
    if n_distinct == n_rows and spaced < 0.2 and length <= 40:
        return _Look("key", "each value once")
    if length > 60 or (n_distinct > 0.5 * n_rows and spaced > 0.5):
        return _Look("text", "mostly different texts with spaces: for people, not for training", mean_length=length)
    if _almost_unique(n_distinct, n_present):
        return _Look("key", f"{n_distinct:,} different texts, almost each once")
    return _Look("category", f"{n_distinct:,} different texts")


def _mean(values: pl.Series) -> float:
    return float(values.cast(pl.Float64).mean() or 0.0)  # type: ignore[arg-type]


def _few_whole(text: pl.Series) -> bool:
    """No comma at all, or commas between three digits only, as in 12,345: not a decimal comma."""
    with_comma = text.filter(text.str.contains(",", literal=True))
    return len(with_comma) == 0 or bool(with_comma.str.contains(r",\d{3}$").all())


def _date_reason(text: pl.Series) -> str:
    # A shape test first: parsing every text column by forty formats would be slow.
    if not bool((text.str.contains(r"\d") & (text.str.len_chars() <= 40)).all()):
        return ""
    try:
        as_times(text, Origin("sample"))
    except GmlfmError:
        return ""
    if ambiguous_date(text) is not None:
        return "dates; whether day or month comes first cannot be told, read as month first: else set time_format"
    return f"dates such as {text[0]!r}"


def _set_separator(text: pl.Series) -> str | None:
    if _mean(text.str.len_chars()) > _LONGEST_SET:
        return None
    text = text.str.replace_all(_ENTITY, "&")
    for separator in _SET_SEPARATORS:
        several = text.str.contains(separator, literal=True)
        if _mean(several) < 0.1:
            continue
        members = text.str.split(separator).list.eval(pl.element().str.strip_chars()).explode(empty_as_null=False)
        members = members.filter(members != "")
        short = _mean(members.str.len_chars()) <= 30
        few_words = _mean(members.str.count_matches(" ")) <= 3
        if short and few_words and members.n_unique() <= 0.7 * len(members):
            if separator == "|" or _are_combined(text.filter(several), separator):
                return separator
    return None


def _are_combined(text: pl.Series, separator: str) -> bool:
    """Whether most members stand beside changing others, as in a set: 'Halle, Saale' is one name with a comma."""
    members = text.unique().str.split(separator).list.eval(pl.element().str.strip_chars()).explode(empty_as_null=False)
    counts = members.filter(members != "").value_counts()["count"]
    return _mean(counts > 1) >= 0.5
