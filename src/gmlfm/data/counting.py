"""Learns vocabularies, scales and id rows from rows that come block by block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from gmlfm.data.attributes import (
    FIRST_VALUE,
    PARTS,
    FieldCode,
    Learned,
    Part,
    count_values,
    lay_out,
    learn_field,
    no_text,
)
from gmlfm.data.schema import Field, Schema

_MOST_NUMBERS = 2_000_000


class FieldValues:
    """One field's values, counted block by block; of numbers, once there are too many, every second, fourth, ... one."""

    def __init__(self, field: Field) -> None:
        self._field = field
        self._counts: pl.DataFrame | None = None
        self._numbers: list[npt.NDArray[np.float64]] = []
        self._stride = 1

    def add(self, column: pl.Series) -> None:
        if self._field.kind == "number":
            self._numbers.append(column.drop_nulls().cast(pl.Float64).to_numpy()[:: self._stride])
            while sum(len(numbers) for numbers in self._numbers) > _MOST_NUMBERS:
                self._numbers = [np.concatenate(self._numbers)[::2]]
                self._stride *= 2
            return
        counts = count_values(column.cast(pl.List(pl.String) if self._field.kind == "set" else pl.String))
        both = counts if self._counts is None else pl.concat([self._counts, counts])
        self._counts = both.group_by("value").agg(pl.col("count").sum())

    def learned(self, part: Part, minimum: int) -> Learned:
        numbers = np.concatenate(self._numbers) if self._numbers else np.empty(0)
        empty = pl.DataFrame(schema={"value": pl.String, "count": pl.UInt32})
        return learn_field(part, self._field, empty if self._counts is None else self._counts, numbers, minimum)


class RowCounts:
    """What the rows of some parts say: how often each user and each item was chosen, and the context fields' values."""

    def __init__(self, n_users: int, n_items: int, schema: Schema) -> None:
        self._chosen = {"user": np.zeros(n_users, np.int32), "item": np.zeros(n_items, np.int32)}
        self._context = {field.name: FieldValues(field) for field in schema.interactions.context}
        self._schema = schema

    def add(self, rows: pl.DataFrame, parts: Sequence[int]) -> None:
        """rows: user, item, part, positive, perhaps label, and the context as 'context NAME'.

        Context is learned from rows that a task learns from: positives, and rows with a label.
        """
        rows = rows.filter(pl.col("part").is_in(list(parts)))
        is_learned = pl.col("positive") | pl.col("label").is_not_null() if "label" in rows.columns else pl.col("positive")
        for name, values in self._context.items():
            values.add(rows.filter(is_learned)[f"context {name}"])
        for side, counts in self._chosen.items():
            numbers, n_rows = np.unique(rows.filter("positive")[side].to_numpy(), return_counts=True)
            counts[numbers] += n_rows.astype(np.int32)

    def vocabulary(self, side_fields: Sequence[Learned], *, user_ids: bool = True) -> Vocabulary:
        """Id rows by the counts, the most frequent first, with what these rows say of the context beside fields of sides.
        user_ids=False: no user has a row."""
        learned: list[Learned] = []
        ranks: dict[str, npt.NDArray[np.int32]] = {}
        for part in PARTS:
            if part == "context":
                minima = {name: self._schema.min_count_of(part, name) for name in self._context}
                learned += [values.learned(part, minima[name]) for name, values in self._context.items()]
                continue
            ranks[part] = _ranks(self._chosen[part], self._schema.min_count_of(part, part))
            if part == "user" and not user_ids:
                ranks[part] = np.full(len(ranks[part]), -1, np.int32)
            learned.append(Learned(part, part, "id", int((ranks[part] >= 0).sum()), no_text()))
            learned += [field for field in side_fields if field.part == part]
        codes = lay_out(learned)
        id_rows: dict[str, npt.NDArray[np.int32]] = {
            code.part: np.where(ranks[code.part] >= 0, code.offset + FIRST_VALUE + ranks[code.part], code.unknown_row).astype(
                np.int32
            )
            for code in codes
            if code.kind == "id"
        }
        return Vocabulary(codes, tuple(field.texts for field in learned), id_rows)


@dataclass(frozen=True)
class Vocabulary:
    """The fields' blocks of rows, the texts of their values (none for ids), and the id row of each user and item by number."""

    codes: tuple[FieldCode, ...]
    texts: tuple[pl.Series, ...]
    id_rows: Mapping[str, npt.NDArray[np.int32]]


def _ranks(counts: npt.NDArray[np.int32], minimum: int) -> npt.NDArray[np.int32]:
    """Each entity's rank by falling count, -1 below the minimum."""
    frequent = np.flatnonzero(counts >= minimum)
    order = frequent[np.argsort(-counts[frequent], kind="stable")]
    ranks = np.full(len(counts), -1, np.int32)
    ranks[order] = np.arange(len(order), dtype=np.int32)
    return ranks


class ItemTally:
    """Which items have a row, and which have more than one, counted block by block."""

    def __init__(self, n_items: int) -> None:
        self.is_seen = np.zeros(n_items, bool)
        self.is_repeated = np.zeros(n_items, bool)

    def add(self, items: npt.NDArray[np.int32]) -> None:
        numbers, counts = np.unique(items, return_counts=True)
        self.is_repeated[numbers] |= self.is_seen[numbers] | (counts > 1)
        self.is_seen[numbers] = True
