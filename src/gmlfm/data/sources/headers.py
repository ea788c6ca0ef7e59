"""Whether the first line of a file holds the columns' names, told by comparing its cells with the columns below them.

Naive Bayes: each cell adds the logarithm of how much likelier it is as a name than as one more value of its column, by four
features: its shape (a number, a word, an address of the web, ...), its length, whether the column has it again, and whether
its words are those of headers. The chances of a name are set here; the chances of a value are the column's own shares.
"""

from __future__ import annotations

import math

import polars as pl

from gmlfm.data.column_words import HEADER_WORDS, words_of
from gmlfm.data.profiles import WEB_ADDRESS

_DATE = r"^\d{1,4}[./-]\d{1,2}[./-]\d{1,4}"
_LONG = 60  # characters; no name is longer
_SAMPLE = 50_000
_WORD_SAMPLE = 2_000
# The share of names that have each shape.
_SHAPES_OF_NAMES = {
    "empty": 0.02,
    "number": 0.003,
    "date": 0.001,
    "address": 0.001,
    "long": 0.005,
    "with digits": 0.06,
    "several words": 0.16,
    "word": 0.45,
    "Word": 0.3,
}
_RECURRING_NAMES = 0.003  # a name that is also a value of its column, as a publisher called Publisher
_KNOWN_NAMES = 0.5  # names with a word of HEADER_WORDS
_NAMES_OF_A_LENGTH = 0.1  # names that have as many characters as a given one
_PRIOR = 1.0  # most files have a header
_MOST_OF_A_CELL = 6.0  # so that no column decides alone


def first_row_is_header(frame: pl.DataFrame) -> bool:
    """Whether the first row of a table that was read without a header is one. All columns are texts."""
    names, rows = frame.head(1), frame.slice(1).head(_SAMPLE)
    evidence = sum(_evidence(names[column], rows[column]) for column in frame.columns)
    return evidence + _PRIOR > 0


def _evidence(name: pl.Series, values: pl.Series) -> float:
    """The logarithm of how much likelier the cell is a name than a value of its column."""
    shape = _shapes(name).item()
    n_alike = int((_shapes(values) == shape).sum())
    evidence = math.log(_SHAPES_OF_NAMES[shape] / _share(n_alike, len(values), 0.3, 0.3 * len(_SHAPES_OF_NAMES)))
    if shape != "empty":
        evidence += _evidence_of_recurrence(name.item(), values.drop_nulls())
    if shape not in ("empty", "long"):
        of_its_length = int((values.str.len_chars() == len(name.item())).sum())
        evidence += math.log(_NAMES_OF_A_LENGTH / _share(of_its_length, len(values), 1.0, 10.0))
    if shape in ("with digits", "several words", "word", "Word"):
        sample = values.drop_nulls().head(_WORD_SAMPLE)
        known_values = _share(sum(map(_has_known_word, sample)), len(sample), 0.5, 10.0)
        evidence += _ratio(_has_known_word(name.item()), _KNOWN_NAMES, known_values)
    return min(max(evidence, -_MOST_OF_A_CELL), _MOST_OF_A_CELL)


def _evidence_of_recurrence(name: str, values: pl.Series) -> float:
    recurring_values = _share(int(values.is_duplicated().sum()), len(values), 0.5, 1.0)
    return _ratio(bool((values == name).any()), _RECURRING_NAMES, recurring_values)


def _share(count: int, of: int, unseen: float, spread: float) -> float:
    """The share of values with a feature, smoothed: never 0 nor 1, however few values there are."""
    return (count + unseen) / (of + spread)


def _ratio(has_feature: bool, of_names: float, of_values: float) -> float:
    return math.log(of_names / of_values) if has_feature else math.log((1 - of_names) / (1 - of_values))


def _has_known_word(text: str) -> bool:
    return len(text) <= _LONG and not HEADER_WORDS.isdisjoint(words_of(text))


def _shapes(values: pl.Series) -> pl.Series:
    """Of each text which of the shapes it has, the first that fits."""
    text = pl.col("text").str.strip_chars()
    start = text.str.slice(0, _LONG + 1)
    # fmt: off
    shape = (
        pl.when(text.is_null() | (text == "")).then(pl.lit("empty"))
        .when(start.cast(pl.Float64, strict=False).is_not_null()).then(pl.lit("number"))
        .when(start.str.contains(_DATE)).then(pl.lit("date"))
        .when(start.str.contains(WEB_ADDRESS)).then(pl.lit("address"))
        .when(start.str.len_chars() > _LONG).then(pl.lit("long"))
        .when(start.str.contains(r"\d")).then(pl.lit("with digits"))
        .when(start.str.contains(r"\s")).then(pl.lit("several words"))
        .when(start.str.contains(r"^\p{Ll}")).then(pl.lit("word"))
        .otherwise(pl.lit("Word"))
    )
    # fmt: on
    return pl.DataFrame({"text": values}).select(shape.alias("shape"))["shape"]
