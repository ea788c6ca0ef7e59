"""What a column looks like: a key, a time, a number, a set, a category, or text for people."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, NamedTuple

import polars as pl

from gmlfm.data.columns import Origin, as_text
from gmlfm.data.times import as_times, day_comes_first
from gmlfm.errors import GmlfmError

Looks = Literal["empty", "constant", "time", "number", "set", "category", "text", "key"]

NUMBER_WORDS = {
    "price",
    "age",
    "year",
    "amount",
    "cost",
    "length",
    "width",
    "height",
    "size",
    "rating",
    "score",
    "count",
    "sum",
}
NUMBER_WORDS |= {"quantity", "qty", "preis", "total", "rank", "votes", "distance", "salary", "income", "duration", "days"}
CODE_WORDS = {"id", "code", "zip", "postal", "plz", "postcode", "no", "nr", "type", "class", "group", "category"}
TIME_WORDS = {
    "time",
    "timestamp",
    "date",
    "datum",
    "created",
    "day",
    "ts",
    "bought",
    "ordered",
    "purchased",
    "datetime",
    "when",
}
_SET_SEPARATORS = ("|", ";", ",")
_SAMPLE = 5_000
DECIMALS = "numbers with decimals"
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

    @property
    def unique(self) -> bool:
        return self.n_distinct == self.n_rows

    @property
    def words(self) -> set[str]:
        return words_of(self.name)


def words_of(name: str) -> set[str]:
    """buyerId, buyer_id and 'Buyer ID' -> {buyer, id}; a plural counts as its singular too."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    words = {word for word in re.split(r"[\W_]+", spaced.lower()) if word}
    return words | {word.removesuffix("s") for word in words if len(word) > 3}


class _Look(NamedTuple):
    looks: Looks
    reason: str
    separator: str | None = None
    decimal_comma: bool = False


def profile(values: pl.Series) -> Profile:
    present = values.drop_nulls()
    countable = not isinstance(values.dtype, (pl.List, pl.Array, pl.Struct)) and values.dtype != pl.Object
    n_distinct = present.n_unique() if countable else 0
    look = _look(values, present, n_distinct)
    n_missing = len(values) - len(present)
    missing = f", {n_missing / len(values):.0%} missing" if n_missing else ""
    return Profile(values.name, look.looks, look.reason + missing, len(values), n_distinct, look.separator, look.decimal_comma)


def _look(values: pl.Series, present: pl.Series, n_distinct: int) -> _Look:
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
    text = as_text(present.head(_SAMPLE), Origin(values.name)).str.strip_chars()
    numbers = text.cast(pl.Float64, strict=False)
    unique = n_distinct == len(values)
    if numbers.null_count() == 0:
        return _numeric(words_of(values.name), text, numbers, n_distinct, unique)
    if has_decimal_comma(text):
        return _Look("number", "numbers with a decimal comma", decimal_comma=True)
    reason = _date_reason(text)
    if reason:
        return _Look("time", reason)
    separator = _set_separator(text)
    if separator:
        return _Look("set", f"several values separated by '{separator}'", separator)
    return _textual(text, n_distinct, len(values))


def has_decimal_comma(text: pl.Series) -> bool:
    """Whether texts are numbers such as 13,40."""
    return bool(text.str.contains(_DECIMAL_COMMA).all()) and not _few_whole(text)


def _numeric(words: set[str], text: pl.Series, numbers: pl.Series, n_distinct: int, unique: bool) -> _Look:
    lowest, highest = float(numbers.min()), float(numbers.max())  # type: ignore[arg-type]
    if words & TIME_WORDS and (1e8 < lowest < 2e16 or text.str.contains(r"^(19|20)\d{6}$").all()):
        return _Look("time", "whole numbers that read as moments")
    if bool(text.str.contains(r"^0\d").any()):
        return _Look("key" if unique else "category", "digits with leading zeros: a code, not a number")
    if not bool((numbers % 1 == 0).all()):
        return _Look("number", DECIMALS)
    if words & NUMBER_WORDS and "id" not in words:
        return _Look("number", f"whole numbers from {lowest:g} to {highest:g}")
    if unique:
        return _Look("key", "whole numbers, each once")
    if words & CODE_WORDS or n_distinct <= 50:
        return _Look("category", f"{n_distinct:,} different whole numbers: taken as codes")
    return _Look("number", f"whole numbers from {lowest:g} to {highest:g}")


def _textual(text: pl.Series, n_distinct: int, n_rows: int) -> _Look:
    length = _mean(text.str.len_chars())
    spaced = _mean(text.str.contains(" "))
    if n_distinct == n_rows and spaced < 0.2 and length <= 40:
        return _Look("key", "each value once")
    if length > 60 or (n_distinct > 0.5 * n_rows and spaced > 0.5):
        return _Look("text", "mostly different texts with spaces: for people, not for training")
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
    if bool(text.str.contains(r"^\d{1,2}[/-]\d{1,2}[/-]\d{4}").any()) and day_comes_first(text) is None:
        return "dates; whether day or month comes first cannot be told, read as month first: else set time_format"
    return f"dates such as {text[0]!r}"


def _set_separator(text: pl.Series) -> str | None:
    for separator in _SET_SEPARATORS:
        several = text.str.contains(separator, literal=True)
        if _mean(several) < 0.1:
            continue
        members = text.str.split(separator).list.eval(pl.element().str.strip_chars()).explode(empty_as_null=False)
        members = members.filter(members != "")
        short = _mean(members.str.len_chars()) <= 30
        few_words = _mean(members.str.count_matches(" ")) <= 3
        if short and few_words and members.n_unique() <= 0.7 * len(members):
            return separator
    return None
