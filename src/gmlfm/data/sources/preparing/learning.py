"""Learns vocabularies, scales and id rows, counting bucket by bucket."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from gmlfm.data.attributes import FIRST_VALUE, PARTS, Learned, Part, count_values, lay_out, learn_field, no_text
from gmlfm.data.encoding import Encoder
from gmlfm.data.schema import Field
from gmlfm.data.sources.preparing.plan import Bucket, Plan
from gmlfm.data.splits import TRAIN

_MOST_NUMBERS = 2_000_000


def learn(plan: Plan, users: list[Bucket], items: list[Bucket]) -> tuple[Encoder, dict[str, npt.NDArray[np.int32]]]:
    """Vocabularies over the numbered buckets; id rows by training positives, the most frequent first."""
    counts = {"user": np.zeros(_total(users), np.int32), "item": np.zeros(_total(items), np.int32)}
    context = {field.name: _Values(field) for field in plan.schema.interactions.context}
    for number, path in enumerate(shard_files(plan)):
        plan.progress("counting", number, plan.n_buckets)
        frame = pl.read_parquet(path).filter(pl.col("part") == TRAIN)
        for side in ("user", "item"):
            positives = frame.filter("positive")[side].to_numpy()
            numbers, n_rows = np.unique(positives, return_counts=True)
            counts[side][numbers] += n_rows.astype(np.int32)
        for name, values in context.items():
            values.add(frame[f"context {name}"])
    learned: list[Learned] = []
    ranks: dict[str, npt.NDArray[np.int32]] = {}
    for part in PARTS:
        if part != "context":
            ranks[part] = _ranks(counts[part], plan.schema.min_count.get(part, 1))
            learned.append(Learned(part, part, "id", int((ranks[part] >= 0).sum()), no_text()))
        values_of = context if part == "context" else _side_values(plan, part)
        for field in plan.schema.fields_of(part):
            learned.append(values_of[field.name].learned(part, plan.schema.min_count_of(part, field.name)))
    codes = lay_out(learned)
    no_ids = pl.Series("id", [], dtype=pl.String)
    encoder = Encoder(codes, tuple(field.texts for field in learned), no_ids, no_ids, "text", "text")
    id_rows: dict[str, npt.NDArray[np.int32]] = {}
    for code in codes:
        if code.kind == "id":
            rank = ranks[code.part]
            id_rows[code.part] = np.where(rank >= 0, code.offset + FIRST_VALUE + rank, code.unknown_row).astype(np.int32)
    return encoder, id_rows


def _side_values(plan: Plan, part: Part) -> dict[str, _Values]:
    values = {field.name: _Values(field) for field in plan.schema.fields_of(part)}
    for path in sorted((plan.work / f"numbered-{part}s").glob("[0-9]*/side.parquet")) if values else []:
        frame = pl.read_parquet(path)
        for name, values_of_field in values.items():
            if f"field {name}" in frame.columns:
                values_of_field.add(frame[f"field {name}"])
    return values


def shard_files(plan: Plan) -> list[Path]:
    return sorted((plan.work / "numbered-users").glob("[0-9]*/rows.parquet"))


class _Values:
    """One field's values, counted bucket by bucket; of numbers, once there are too many, every second, fourth, ... one."""

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


def _ranks(counts: npt.NDArray[np.int32], minimum: int) -> npt.NDArray[np.int32]:
    """Each entity's rank by falling count, -1 below the minimum."""
    frequent = np.flatnonzero(counts >= minimum)
    order = frequent[np.argsort(-counts[frequent], kind="stable")]
    ranks = np.full(len(counts), -1, np.int32)
    ranks[order] = np.arange(len(order), dtype=np.int32)
    return ranks


def _total(buckets: list[Bucket]) -> int:
    return buckets[-1].start + buckets[-1].n
