"""Encodes numbered buckets into the shards of the prepared folder."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import polars as pl

from gmlfm.data.attributes import Part
from gmlfm.data.encoding import Encoder
from gmlfm.data.prepared import ShardInfo, unpadded
from gmlfm.data.sources.preparing.plan import Bucket, Plan, read_done, read_work
from gmlfm.data.sources.preparing.splitting import Splitter, n_shards, read_history, read_rows
from gmlfm.data.split_rules import repeats_note
from gmlfm.data.splits import TEST, TRAIN, VALIDATION
from gmlfm.storage import new_file


def encode_side(
    plan: Plan,
    name: str,
    part: Part,
    buckets: list[Bucket],
    encoder: Encoder,
    id_rows: npt.NDArray[np.int32],
    widths: dict[str, int],
) -> tuple[ShardInfo, ...]:
    shards: list[ShardInfo] = []
    widths[part] = 0
    n_unlisted = 0
    spec = plan.schema.users if part == "user" else plan.schema.items
    has_titles = spec is not None and spec.title is not None
    listed_type = _listed_type(plan) if spec is not None and spec.listed is not None else None
    for number, bucket in enumerate(buckets):
        plan.progress(f"encoding {name}", number, len(buckets))
        if bucket.n == 0:
            continue
        side = read_work(plan.work / f"numbered-{name}" / f"{number:05d}" / "side.parquet")
        dtypes = {"number": pl.Float64(), "category": pl.String(), "set": pl.List(pl.String)}
        # A bucket may hold unlisted entities alone, and then has no column for a field.
        columns = [
            side[f"field {field.name}"].alias(field.name)
            if f"field {field.name}" in side.columns
            else pl.Series(field.name, [None], dtype=dtypes[field.kind]).new_from_index(0, side.height)
            for field in plan.schema.fields_of(part)
        ]
        table = encoder.encode_part(part, None, pl.DataFrame(columns), side.height)
        ids = table.ids.copy()
        ids[:, 0] = id_rows[bucket.start : bucket.start + bucket.n]
        rows, x = unpadded(replace(table, ids=ids))
        widths[part] = max(widths[part], ids.shape[1])
        frame = pl.DataFrame(
            {
                "number": np.arange(bucket.start, bucket.start + bucket.n, dtype=np.int32),
                "id": side["id"],
                "rows": rows,
                "x": x,
            }
        ).with_columns(values.alias(f"field {values.name}") for values in columns)
        if has_titles:
            frame = frame.with_columns(side["title"] if "title" in side.columns else pl.lit(None, pl.String).alias("title"))
        if listed_type is not None:
            listed = side["listed"].cast(listed_type) if "listed" in side.columns else pl.lit(None, listed_type).alias("listed")
            frame = frame.with_columns(listed)
        n_unlisted += int((~side["in_table"]).sum())
        shards.append(ShardInfo(f"{len(shards):05d}", bucket.n))
        with new_file(plan.out / name / f"{shards[-1].name}.parquet") as draft:
            frame.write_parquet(draft)
    if n_unlisted and plan.schema.fields_of(part):
        plan.notes.append(f"{n_unlisted:,} {name} have no row in the {name} table; kept, with missing attributes.")
    return tuple(shards)


def _listed_type(plan: Plan) -> pl.DataType:
    done = read_done(plan.work / "items" / "done.json")
    return pl.Float64() if done["listed_is_float"] else pl.Int64()


def write_history(plan: Plan) -> tuple[ShardInfo, ...]:
    """The rows that count as history alone, of each shard of interactions that has some under its name."""
    shards = []
    for number in range(n_shards(plan)):
        rows = read_history(plan, number)
        if rows is not None:
            shards.append(ShardInfo(f"{number:05d}", rows.height))
            with new_file(plan.out / "history" / f"{number:05d}.parquet") as draft:
                rows.write_parquet(draft)
    return tuple(shards)


def encode_interactions(plan: Plan, splitter: Splitter, encoder: Encoder, widths: dict[str, int]) -> tuple[ShardInfo, ...]:
    shards = []
    widths["context"] = 0
    names = [field.name for field in plan.schema.interactions.context]
    n_trained = n_tested = 0
    for number in range(n_shards(plan)):
        plan.progress("encoding interactions", number, n_shards(plan))
        frame = splitter.with_parts(read_rows(plan, number), number)
        if names:
            context = frame.select(pl.col(f"context {name}").alias(name) for name in names)
            table = encoder.encode_part("context", None, context, frame.height)
            widths["context"] = max(widths["context"], table.ids.shape[1])
            rows, x = unpadded(table)
            frame = frame.with_columns(rows.alias("rows"), x.alias("x"))
        ordered = [
            name
            for name in ("user", "item", "part", "time", "label", "weight", "positive", "is_history", "rows", "x")
            if name in frame.columns
        ] + [f"context {name}" for name in names]
        with new_file(plan.out / "interactions" / f"{number:05d}.parquet") as draft:
            frame.select(ordered).write_parquet(draft)
        sizes = [int((frame["part"] == part).sum()) for part in (TRAIN, VALIDATION, TEST)]
        shards.append(ShardInfo(f"{number:05d}", frame.height, *sizes))
        if plan.schema.interactions.repeats == "keep" or names:
            trained, tested = (
                frame.filter(pl.col("positive") & (pl.col("part") == part)).select("user", "item") for part in (TRAIN, TEST)
            )
            n_trained += tested.join(trained, on=["user", "item"], how="semi").height
            n_tested += tested.height
    plan.notes += repeats_note(n_trained, n_tested, plan.schema.interactions.repeats)
    return tuple(shards)
