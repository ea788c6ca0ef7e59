"""Values that can hardly be what their column says: zeros among ratings, impossible ages and years."""

from __future__ import annotations

import re
from datetime import date

import numpy as np
import polars as pl

from gmlfm.data.column_words import words_of

_OLDEST_AGE = 120
_FIRST_YEAR = 1000
_PLAIN_NAME = re.compile(r"[^\W\d][\w.]*")
_CONDITION_WORDS = {"and", "or", "not", "in", "is", "null"}


def doubtful_rating(values: pl.Series) -> str | None:
    """A sentence on a lowest value that may mean "no rating" beside three ratings or more: a 0 more common than any, or -1."""
    ratings = values.cast(pl.Float64, strict=False).drop_nulls().drop_nans().to_numpy()
    scale, counts = np.unique(ratings, return_counts=True)
    if len(scale) < 4 or scale[0] not in (0, -1) or scale[1] <= 0 or scale[-1] < 3:
        return None
    if scale[0] == 0 and counts[0] < counts[1:].max():
        return None
    share = f"{counts[0]:,} of {len(values):,} rows ({counts[0] / len(values):.0%})"
    return (
        f"'{values.name}' is {scale[0]:g} in {share} beside ratings of {scale[1]:g} to {scale[-1]:g}: "
        f"where that means 'no rating', leave these rows out with "
        f'where = "{_in_condition(values.name)} > 0" in [interactions].'
    )


def doubtful_field(values: pl.Series, side: str, this_year: int | None = None) -> str | None:
    """A sentence on values of a field that cannot be ages of users, or years."""
    words = words_of(values.name)
    numbers = values.cast(pl.Float64, strict=False).drop_nulls() if not values.dtype.is_nested() else pl.Series([0.0])
    middle = float(numbers.median() or 0.0)  # type: ignore[arg-type]
    if side == "users" and "age" in words and 1 < middle < _OLDEST_AGE:
        kind, wrong = "ages", (numbers <= 0) | (numbers > _OLDEST_AGE)
    elif words & {"year", "jahr", "geburtsjahr", "birthyear", "yob"} and _FIRST_YEAR < middle < 2 * _FIRST_YEAR + 100:
        last_year = (this_year or date.today().year) + 1
        kind, wrong = "years", (numbers < _FIRST_YEAR) | (numbers > last_year)
    else:
        return None
    if not wrong.any():
        return None
    examples = numbers.filter(wrong).unique().sort()
    shown = " and ".join(f"{value:g}" for value in dict.fromkeys((examples[0], examples[-1])))
    return (
        f"'{values.name}' has {int(wrong.sum()):,} of {len(numbers):,} values that cannot be {kind}, such as {shown}: "
        "write them as missing, or they are trained on as they are."
    )


def _in_condition(name: str) -> str:
    """A column's name as a condition takes it."""
    return name if _PLAIN_NAME.fullmatch(name) and name.lower() not in _CONDITION_WORDS else f"`{name}`"
