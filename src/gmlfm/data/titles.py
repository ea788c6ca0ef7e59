"""Finds the column that people are shown: a book's title, a product's name."""

from __future__ import annotations

from collections.abc import Sequence

from gmlfm.data.column_words import TITLE_WORDS
from gmlfm.data.profiles import Profile
from gmlfm.data.references import SIDE_WORDS

_OTHER_WORDS = {"original", "full", "display", "short", "long", "main", "en", "english"}
_LONGEST_TITLE = 100  # characters on average


def title_column(columns: Sequence[Profile], side: str) -> Profile | None:
    """A column called title or name, of the side's own things: a book's title, but not the name of its brand.

    Where none is called so, of items also the first column of mostly different, short texts with spaces.
    """
    named = [column for column in columns if column.words & TITLE_WORDS and column.looks in ("text", "category", "key", "set")]
    usual = TITLE_WORDS | SIDE_WORDS[side] | _OTHER_WORDS
    of_the_side = [column for column in named if all(word in usual or word.removesuffix("s") in usual for word in column.words)]
    candidates = of_the_side or [column for column in named if column.looks in ("text", "key")]
    if candidates:
        return max(candidates, key=lambda column: column.n_distinct)
    texts = [column for column in columns if column.looks == "text" and 0 < column.mean_length <= _LONGEST_TITLE]
    return texts[0] if texts and side == "items" else None
