"""Which column of one table names the rows of another: by the columns' names first, then by the values that they share."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import NamedTuple

import polars as pl

from gmlfm.data.column_words import ITEM_WORDS, USER_WORDS
from gmlfm.data.columns import Origin, as_ids
from gmlfm.data.profiles import Looks, Profile
from gmlfm.errors import SchemaError

SIDE_WORDS = {"users": USER_WORDS, "items": ITEM_WORDS}
_ID_LOOKS: tuple[Looks, ...] = ("key", "category", "number", "constant", "address")
_WORDS_BESIDE_IDS = {"id", "key", "no", "nr", "number", "code", "ref"}
_SAMPLE = 20_000


class Reference(NamedTuple):
    """A key of one table, the column of another that names it, and how well they fit; the names are empty where none does."""

    key: str = ""
    foreign_key: str = ""
    score: float = 0.0


class References:
    """Finds ids among the profiled columns of tables."""

    def __init__(self, tables: Mapping[str, pl.DataFrame], profiles: Mapping[str, Mapping[str, Profile]]) -> None:
        self._tables = tables
        self._profiles = profiles
        self._ids: dict[tuple[str, str], pl.Series] = {}

    def columns(self, table: str, without: Collection[str] = ()) -> list[Profile]:
        return [column for column in self._profiles[table].values() if column.name not in without]

    def named(self, table: str, side: str, without: Collection[str] = ()) -> list[Profile]:
        """Columns with a word of the side in their names, and which may be ids."""
        columns = [column for column in self.columns(table, without) if column.words & SIDE_WORDS[side]]
        return [column for column in columns if column.looks in _ID_LOOKS]

    def called_ids(self, table: str, side: str) -> list[str]:
        """Columns whose names say the side's id and nothing else: user, userId, buyer no; but not user_agent."""
        words = SIDE_WORDS[side] | _WORDS_BESIDE_IDS
        return [
            column.name
            for column in self.named(table, side)
            if all(word in words or word.removesuffix("s") in words for word in column.words)
        ]

    def keys(self, table: str) -> list[Profile]:
        """Columns that could be a side table's id: every value once. A title may be unique too, so short names come first."""
        columns = self.columns(table)
        # Where lines stand twice, no column is unique; reading the table says which lines they are.
        unique = [column for column in columns if column.unique] or [column for column in columns if _is_nearly_unique(column)]
        return [column for column in unique if column.looks in ("key", "category", "number")] or unique

    def best(self, main: str, table: str, side: str, without: Collection[str] = ()) -> Reference:
        """The column of `main` that names a table of users or items.

        Where columns of `main` are called the side's ids only these are looked at, and never those called the other side's:
        whole numbers from 1 on share their values with everything.
        """
        called = self.called_ids(main, side)
        others = self.called_ids(main, "items" if side == "users" else "users")
        columns = [column for column in self.columns(main, without) if column.name in called or not called]
        columns = [column for column in columns if column.name in called or column.name not in others]
        best = Reference()
        for key in self.keys(table):
            for column in columns:
                if column.looks in ("time", "set", "empty", "text") or self.is_counter(main, column):
                    continue
                overlap = self._overlap(main, column, table, key)
                score = overlap + _likeness(key, column, side) + min(math.log10(1 + column.n_distinct), 6) / 10
                if overlap > 0 and score > best.score:
                    best = Reference(key.name, column.name, score)
        return best

    def is_counter(self, table: str, column: Profile) -> bool:
        """Whether a column numbers the rows: whole numbers, each once, in ascending order."""
        if not column.unique or column.n_rows < 3 or column.looks not in ("key", "number"):
            return False
        numbers = self._tables[table][column.name].cast(pl.Int64, strict=False)
        return numbers.null_count() == 0 and numbers.is_sorted()

    def refers_to(self, main: str, table: str) -> bool:
        """Whether some column of `main` names the rows of another table, be they users or items."""
        return any(self.best(main, table, side).score > 0.5 for side in SIDE_WORDS)

    def key_named_by(self, main: str, foreign_key: str, table: str, side: str) -> str:
        """The key that a column of `main` names: by name and shared values, else the column of its name, else the first."""
        column, keys = self._profiles[main][foreign_key], self.keys(table)
        overlaps = {key.name: self._overlap(main, column, table, key) for key in keys}
        if any(overlaps.values()):
            shared = [key for key in keys if overlaps[key.name] > 0]
            return max(shared, key=lambda key: overlaps[key.name] + _likeness(key, column, side)).name
        if foreign_key in self._tables[table].columns:
            return foreign_key
        if not keys:
            raise SchemaError(f"no column of {table} has every value once, so none can be the id that {foreign_key} names.")
        return keys[0].name

    def _overlap(self, main: str, column: Profile, table: str, key: Profile) -> float:
        """The share of a column's values that are keys."""
        sample, _ = as_ids(self._tables[main][column.name].drop_nulls().head(_SAMPLE), Origin(main))
        if (table, key.name) not in self._ids:
            self._ids[table, key.name], _ = as_ids(self._tables[table][key.name], Origin(table))
        return float(sample.is_in(self._ids[table, key.name].implode()).mean() or 0.0)  # type: ignore[arg-type]


def _is_nearly_unique(column: Profile) -> bool:
    return column.looks in ("key", "category", "number", "text") and column.n_distinct >= 0.9 * column.n_rows


def _likeness(key: Profile, column: Profile, side: str) -> float:
    """How much the names of a key and of a column that may name it are alike, and speak of the side."""
    alike = 1.0 * (key.name == column.name) + 0.5 * bool((key.words & column.words) - {"id"})
    return alike + 0.7 * bool(column.words & SIDE_WORDS[side]) + 0.3 * bool(key.words & (SIDE_WORDS[side] | {"id"}))
