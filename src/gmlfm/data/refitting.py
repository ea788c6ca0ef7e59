"""A prepared folder encoded anew: for a refit, which learns from more parts than the folder's encoder was fitted on, and for
models with a history, in which users have no rows of their own.

Ids have rows by their positives in these parts, context values and scales are learned from their rows; the fields of users and
items are those of the whole tables, whichever rows are learned from, so only their blocks move. What is held is some numbers
for each user and item; the new rows are written block by block into the folder's cache and mapped from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from gmlfm.data.attributes import PADDING, AttributeTable, FieldCode, Learned, Part, no_text
from gmlfm.data.columns import without_prefix
from gmlfm.data.counting import RowCounts
from gmlfm.data.encoding import Encoder
from gmlfm.data.occurrences import ItemBounds, Occurrences
from gmlfm.data.prepared import CACHE, PreparedData, write_header
from gmlfm.errors import DataError
from gmlfm.storage import new_file

_ROWS_PER_BLOCK = 1_000_000


class RefittedData(PreparedData):
    """Reads as the folder itself does, in the rows of an encoder fitted on `parts`. user_ids=False: no user has a row."""

    def __init__(self, prepared: PreparedData, parts: Sequence[int], *, user_ids: bool = True) -> None:
        self.folder, self._base = prepared.folder, prepared
        counts = RowCounts(prepared.info.n_users, prepared.info.n_items, prepared.info.schema)
        width = 0
        with prepared.fitting():
            for number in range(prepared.n_shards):
                rows = prepared.interactions(number)
                counts.add(rows, parts)
                width = max(width, _context_width(rows, prepared.info.fields))
            self._vocabulary = counts.vocabulary(_side_fields(prepared), user_ids=user_ids)
        widths = {**prepared.info.widths, "context": width}
        self.info = replace(prepared.info, fields=self._vocabulary.codes, widths=widths)
        self._stage = "-".join(map(str, parts)) + ("" if user_ids else "-no-users")

    @cached_property
    def users(self) -> AttributeTable:
        return self._moved(self._base.users, "user")

    @cached_property
    def items(self) -> AttributeTable:
        return self._moved(self._base.items, "item")

    @cached_property
    def occurrences(self) -> Occurrences:
        return self._base.occurrences

    @cached_property
    def bounds(self) -> ItemBounds | None:
        return self._base.bounds

    @cached_property
    def row_bounds(self) -> ItemBounds | None:
        return self._base.row_bounds

    @cached_property
    def is_ordered(self) -> bool:
        return self._base.is_ordered

    @cached_property
    def values(self) -> pl.DataFrame:
        return self._encoder.values_table()

    @cached_property
    def _encoder(self) -> Encoder:
        no_ids = pl.Series("id", [], dtype=pl.String)
        return Encoder(self._vocabulary.codes, self._vocabulary.texts, no_ids, no_ids, "text", "text")

    def _context_attributes(self, frame: pl.DataFrame) -> AttributeTable:
        table = self._encoder.encode_part("context", None, without_prefix(frame, "context "), frame.height)
        missing = ((0, 0), (0, self.info.widths["context"] - table.ids.shape[1]))
        return AttributeTable(np.pad(table.ids, missing, constant_values=PADDING), np.pad(table.values, missing))

    def _moved(self, table: AttributeTable, part: Part) -> AttributeTable:
        """A side's rows in the new blocks: ids by their new rows, all others as far as their field's block has moved."""
        path, id_rows = self._path(part), self._vocabulary.id_rows[part]
        starts = np.array([PADDING, *(code.offset for code in self._base.info.fields)])
        shifts = np.array(
            [0, *(new.offset - old.offset for new, old in zip(self.info.fields, self._base.info.fields, strict=True))]
        )
        try:
            with new_file(path) as draft:
                with draft.open("wb") as file:
                    write_header(file, np.int32, table.ids.shape)
                    for start in range(0, len(table), _ROWS_PER_BLOCK):
                        rows = np.asarray(table.ids[start : start + _ROWS_PER_BLOCK])
                        moved = rows + shifts[np.searchsorted(starts, rows, side="right") - 1].astype(np.int32)
                        moved[:, 0] = id_rows[start : start + len(rows)]
                        moved.tofile(file)
                # Mapped before it has its name: another refit of the same parts may replace or remove that.
                ids: npt.NDArray[np.int32] = np.load(draft, mmap_mode="r")
        except DataError as error:
            raise DataError(
                f"{error} A refit, and training with a history, encode the folder anew there: make room, or allow writing, or "
                "leave the refit out and set history = none."
            ) from error
        return AttributeTable(ids, table.values)

    def remove_cache(self) -> None:
        """Give back the room on disk; what is mapped stays readable until this object is gone."""
        for part in ("user", "item"):
            self._path(part).unlink(missing_ok=True)

    def _path(self, part: str) -> Path:
        """A name for each choice of parts: what a killed run leaves, the next refit replaces."""
        return self.folder / CACHE / f"{part}s.ids.parts-{self._stage}.npy"


def _side_fields(prepared: PreparedData) -> list[Learned]:
    """What the folder's encoder has learned of the fields of users and items."""
    fields = []
    for index, code in enumerate(prepared.info.fields):
        if code.kind != "id" and code.part != "context":
            texts = prepared.values.filter(pl.col("field") == index)["value"] if code.kind != "number" else no_text()
            learned = Learned(code.part, code.name, code.kind, code.n_values, texts, code.weighting)
            fields.append(replace(learned, centre=code.centre, scale=code.scale))
    return fields


def _context_width(rows: pl.DataFrame, fields: Sequence[FieldCode]) -> int:
    """No row of the frame has more context attributes: one of each field with one value, all members of sets."""
    context = [code for code in fields if code.part == "context"]
    n_singles = sum(code.kind != "set" for code in context)
    sizes = [pl.col(f"context {code.name}").list.len().fill_null(1) for code in context if code.kind == "set"]
    if not sizes or rows.height == 0:
        return n_singles
    return n_singles + int(rows.select(pl.sum_horizontal(size.cast(pl.Int64) for size in sizes).max()).item())
