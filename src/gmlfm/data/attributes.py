"""Attribute rows: how one field's values become rows and numbers x, and come back.

Rows are numbered through all fields. Row 0 is padding. Each field then has a block:

    offset + 0   unknown: a value without a row of its own, and what id hiding trains
    offset + 1   missing: the caller's table says nothing
    offset + 2.. the values (a number field has one, whose x is the standardised number)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from gmlfm.data.schema import Field, Weighting
from gmlfm.errors import DataError

Part = Literal["user", "context", "item"]
PARTS: tuple[Part, ...] = ("user", "context", "item")  # the order of a training row
PADDING, UNKNOWN, MISSING, FIRST_VALUE = 0, 0, 1, 2
_LARGEST_X = 5.0


@dataclass(frozen=True)
class FieldCode:
    """One field's block of attribute rows."""

    part: Part
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
    """What fitting found for one field: the texts of its values, how many there are, or a number's scale."""

    part: Part
    name: str
    kind: Literal["id", "category", "set", "number"]
    n_values: int
    texts: pl.Series
    weighting: Weighting = "none"
    centre: float = 0.0
    scale: float = 1.0


def lay_out(learned: list[Learned]) -> tuple[FieldCode, ...]:
    """Give each field its block of rows, one after another, behind the padding row."""
    codes: list[FieldCode] = []
    for one in learned:
        offset = codes[-1].end if codes else 1
        codes.append(FieldCode(one.part, one.name, one.kind, offset, one.n_values, one.weighting, one.centre, one.scale))
    if codes[-1].end > np.iinfo(np.int32).max:
        raise DataError(f"{codes[-1].end:,} attributes are more than int32 can number; raise min_count.")
    return tuple(codes)


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
    kept = np.flatnonzero(counts >= minimum)
    return most_frequent_first(pl.DataFrame({"value": ids[kept], "count": counts[kept]}))


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
    low, centre, high = (float(one) for one in np.quantile(finite, [0.25, 0.5, 0.75]))
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
    rows = pl.DataFrame({"value": texts, "row": np.arange(field.offset + FIRST_VALUE, field.end, dtype=np.int32)})
    found = pl.DataFrame({"value": column.cast(pl.String)}).join(rows, on="value", how="left", maintain_order="left")["row"]
    return found.fill_null(field.unknown_row).set(column.is_null(), field.missing_row)


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
    members = pl.concat(sets) if sets else pl.DataFrame(schema={"entity": pl.Int32, "row": pl.Int32, "x": pl.Float32})
    entity = members["entity"].to_numpy()
    order = np.argsort(entity, kind="stable")
    entity = entity[order].astype(np.int64)
    counts = np.bincount(entity, minlength=n)
    starts = np.concatenate(([0], np.cumsum(counts)[:-1])) if n else counts
    width = len(singles) + (int(counts.max()) if n and len(entity) else 0)
    ids = np.full((n, width), PADDING, np.int32)
    values = np.zeros((n, width), np.float32)
    for at, (rows, x) in enumerate(singles):
        ids[:, at], values[:, at] = rows, x
    at_column = len(singles) + np.arange(len(entity)) - starts[entity]
    ids[entity, at_column] = members["row"].to_numpy()[order]
    values[entity, at_column] = members["x"].to_numpy()[order]
    ids.flags.writeable = values.flags.writeable = False
    return AttributeTable(ids, values)


def decode_set(field: FieldCode, texts: pl.Series, table: AttributeTable, here: npt.NDArray[np.bool_]) -> pl.Series:
    entity, column = np.nonzero(here)
    rows = table.ids[entity, column] - field.offset
    missing = np.zeros(len(table), bool)
    missing[entity[rows == MISSING]] = True
    known = rows >= FIRST_VALUE
    flat = pl.DataFrame({"entity": entity[known], "value": take(texts, rows[known] - FIRST_VALUE)})
    lists = flat.group_by("entity", maintain_order=True).agg("value")
    whole = pl.DataFrame({"entity": np.arange(len(table))}).join(lists, on="entity", how="left", maintain_order="left")["value"]
    empty = pl.Series([[]], dtype=pl.List(pl.String)).new_from_index(0, len(table))
    return whole.zip_with(whole.is_not_null(), empty).set(pl.Series(missing), None).alias(field.name)


def take(texts: pl.Series, positions: npt.NDArray[np.integer[Any]]) -> pl.Series:
    """texts[positions], missing where a position is below 0."""
    index = pl.Series(positions).cast(pl.Int64)
    return texts.gather(index.set(index < 0, None).cast(pl.UInt32)) if len(texts) else texts.clear(len(index))
