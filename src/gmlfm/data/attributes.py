"""Attribute rows: how a field's values become rows and numbers x.

Rows are numbered through all fields. Row 0 is padding. Each field then has a block:

    offset + 0   unknown: a value without a row, and what cold-start training learns for ids
    offset + 1   missing: the caller's table says nothing
    offset + 2.. the values (a number field has one, whose x is the standardised number)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from gmlfm.data.schema import Field, Weighting
from gmlfm.data.schema import Part as Part
from gmlfm.errors import DataError

PARTS: tuple[Part, ...] = ("user", "context", "item")  # the order of a training row
Role = Literal["last", "recent", "past"]  # in which an earlier item stands on the user's side: rows of its own in each
Side = Part | Role
ROLES: tuple[Role, ...] = ("last", "recent", "past")
PADDING, UNKNOWN, MISSING, FIRST_VALUE = 0, 0, 1, 2
_LARGEST_X = 5.0
_FEW = 32  # places that are read one by one


@dataclass(frozen=True)
class FieldCode:
    """One field's block of attribute rows."""

    part: Side
    name: str
    kind: Literal["id", "category", "set", "number"]
    offset: int
    n_values: int
    weighting: Weighting = "none"
    centre: float = 0.0
    scale: float = 1.0

    @property
    def unknown_row(self) -> int:
        return self.offset + UNKNOWN

    @property
    def missing_row(self) -> int:
        return self.offset + MISSING

    @property
    def end(self) -> int:
        return self.offset + FIRST_VALUE + self.n_values


@dataclass(frozen=True)
class Learned:
    """What is fitted for a field: the texts of its values and how many there are, or a number's scale."""

    part: Side
    name: str
    kind: Literal["id", "category", "set", "number"]
    n_values: int
    texts: pl.Series
    weighting: Weighting = "none"
    centre: float = 0.0
    scale: float = 1.0


def lay_out(fields: list[Learned]) -> tuple[FieldCode, ...]:
    """Give each field its block of rows, one after another, behind the padding row."""
    codes: list[FieldCode] = []
    for field in fields:
        offset = codes[-1].end if codes else 1
        codes.append(
            FieldCode(field.part, field.name, field.kind, offset, field.n_values, field.weighting, field.centre, field.scale)
        )
    if codes[-1].end > np.iinfo(np.int32).max:
        raise DataError(f"{codes[-1].end:,} attributes are more than int32 can number; raise min_count.")
    return tuple(codes)


def with_roles(codes: tuple[FieldCode, ...], roles: Sequence[Role]) -> tuple[FieldCode, ...]:
    """The codes, and behind them for each role a copy of the items' blocks: what an item is as part of a history.

    Items come last among the codes, so an attribute's row in role number r lies (r + 1) * item_block(codes) behind its own.
    """
    codes = tuple(code for code in codes if code.part in PARTS)
    size = item_block(codes)
    copies = [
        replace(code, part=role, offset=code.offset + (place + 1) * size)
        for place, role in enumerate(roles)
        for code in codes
        if code.part == "item"
    ]
    if copies and copies[-1].end > np.iinfo(np.int32).max:
        raise DataError(f"{copies[-1].end:,} attributes are more than int32 can number; raise min_count, or take fewer roles.")
    return (*codes, *copies)


def item_block(codes: Sequence[FieldCode]) -> int:
    """How many rows the items' fields have together."""
    items = [code for code in codes if code.part == "item"]
    return items[-1].end - items[0].offset


def learn_field(
    part: Part, field: Field, counts: pl.DataFrame | None, numbers: npt.NDArray[np.float64], minimum: int
) -> Learned:
    """A category's or set's values from `counts` (value, count), or a number's scale from `numbers`."""
    if field.kind == "number":
        centre, scale = robust_scale(numbers)
        return Learned(part, field.name, "number", 1, no_text(), centre=centre, scale=scale)
    assert counts is not None
    texts = most_frequent_first(counts.filter(pl.col("count") >= minimum))
    weighting = field.weighting if field.kind == "set" else "none"
    return Learned(part, field.name, field.kind, len(texts), texts, weighting)


@dataclass(frozen=True)
class AttributeTable:
    """The attributes of many users, items or occasions: ids (N, F) int32, values (N, F) float32; padding has value 0."""

    ids: npt.NDArray[np.int32]
    values: npt.NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.ids)


def no_text() -> pl.Series:
    return pl.Series("value", [], dtype=pl.String)


def frequent_ids(ids: pl.Series, numbers: npt.NDArray[np.int32], minimum: int) -> pl.Series:
    counts = np.bincount(numbers, minlength=len(ids))
    frequent = np.flatnonzero(counts >= minimum)
    return most_frequent_first(pl.DataFrame({"value": ids[frequent], "count": counts[frequent]}))


def count_values(column: pl.Series) -> pl.DataFrame:
    """value, count: over rows, or over the members of sets."""
    flat = column.drop_nulls().explode(empty_as_null=False) if isinstance(column.dtype, pl.List) else column.drop_nulls()
    return flat.alias("value").value_counts(name="count")


def most_frequent_first(counts: pl.DataFrame) -> pl.Series:
    """Frequent rows stand together in memory; equal counts by text, so that the order of the file does not matter."""
    return counts.sort(["count", "value"], descending=[True, False])["value"].cast(pl.String)


def robust_scale(numbers: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Median and a spread that outliers do not move; a constant has spread 1."""
    finite = numbers[np.isfinite(numbers)]
    if len(finite) == 0:
        return 0.0, 1.0
    low, centre, high = (float(quantile) for quantile in np.quantile(finite, [0.25, 0.5, 0.75]))
    with np.errstate(over="ignore"):
        # 1.349 is the interquartile range of the standard normal.
        for spread in ((high - low) / 1.349, float(np.abs(finite - centre).mean())):
            if np.isfinite(spread) and spread > 1e-12 * max(1.0, abs(centre)):
                return centre, spread
    return centre, 1.0


def encode_number(field: FieldCode, column: pl.Series) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
    missing = column.is_null().to_numpy()
    raw = column.fill_null(field.centre).to_numpy()
    with np.errstate(over="ignore"):
        x = np.clip((raw - field.centre) / field.scale, -_LARGEST_X, _LARGEST_X)
    rows = np.where(missing, field.missing_row, field.offset + FIRST_VALUE).astype(np.int32)
    return rows, np.where(missing, 1.0, x).astype(np.float32)


def rows_of(field: FieldCode, texts: pl.Series, column: pl.Series) -> pl.Series:
    """The attribute row of each text of `column`: its value's, the unknown or the missing row."""
    lookup = pl.DataFrame({"value": texts, "row": np.arange(field.offset + FIRST_VALUE, field.end, dtype=np.int32)})
    rows = pl.DataFrame({"value": column.cast(pl.String)}).join(lookup, on="value", how="left", maintain_order="left")["row"]
    return rows.fill_null(field.unknown_row).set(column.is_null(), field.missing_row)


def encode_set(field: FieldCode, texts: pl.Series, column: pl.Series) -> pl.DataFrame:
    """entity, row, x of each member; members without a row share the unknown row and add up there."""
    members = pl.DataFrame({"entity": np.arange(len(column), dtype=np.int32), "value": column, "size": column.list.len()})
    flat = members.filter(pl.col("size") > 0).explode("value")
    share = {"none": pl.lit(1.0), "mean": 1.0 / pl.col("size"), "sqrt": 1.0 / pl.col("size").sqrt()}[field.weighting]
    weighted = flat.with_columns(rows_of(field, texts, flat["value"]).alias("row"), share.cast(pl.Float32).alias("x"))
    missing = members.filter(pl.col("value").is_null()).select(
        "entity", row=pl.lit(field.missing_row, pl.Int32), x=pl.lit(1.0, pl.Float32)
    )
    both = pl.concat([weighted.select("entity", "row", "x"), missing])
    return both.group_by(["entity", "row"], maintain_order=True).agg(pl.col("x").sum())


def pack(
    n: int, singles: list[tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]], sets: list[pl.DataFrame]
) -> AttributeTable:
    """A column for each of `singles` (rows, x), then the members of `sets` (entity, row, x), packed to the left."""
    members = pl.concat(sets) if sets else pl.DataFrame(schema={"entity": pl.Int32, "row": pl.Int32, "x": pl.Float32})
    entity = members["entity"].to_numpy()
    order = np.argsort(entity, kind="stable")
    entity = entity[order].astype(np.int64)
    counts = np.bincount(entity, minlength=n)
    starts = np.concatenate(([0], np.cumsum(counts)[:-1])) if n else counts
    width = len(singles) + (int(counts.max()) if n and len(entity) else 0)
    ids = np.full((n, width), PADDING, np.int32)
    values = np.zeros((n, width), np.float32)
    for index, (rows, x) in enumerate(singles):
        ids[:, index], values[:, index] = rows, x
    column = len(singles) + np.arange(len(entity)) - starts[entity]
    ids[entity, column] = members["row"].to_numpy()[order]
    values[entity, column] = members["x"].to_numpy()[order]
    ids.flags.writeable = values.flags.writeable = False
    return AttributeTable(ids, values)


def take(texts: pl.Series, positions: npt.NDArray[np.integer[Any]]) -> pl.Series:
    """texts[positions], missing where a position is below 0."""
    if 0 < len(positions) <= _FEW and len(texts):
        return pl.Series(texts.name, [texts[place] if place >= 0 else None for place in positions.tolist()], dtype=texts.dtype)
    index = pl.Series(positions).cast(pl.Int64)
    return texts.gather(index.set(index < 0, None).cast(pl.UInt32)) if len(texts) else texts.clear(len(index))
