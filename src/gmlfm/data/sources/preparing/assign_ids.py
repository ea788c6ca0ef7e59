"""Gives the ids of each bucket their entity numbers: first the items', then, partitioned by user, the users'."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl

from gmlfm.data.building import merge_repeats, merged_warning
from gmlfm.data.events import history_alone
from gmlfm.data.schema import SideSchema
from gmlfm.data.sources.preparing.partition import partition_rows
from gmlfm.data.sources.preparing.plan import Bucket, Plan, count_work, read_all, read_done
from gmlfm.errors import DataError
from gmlfm.storage import new_folder, write_text


def assign_item_ids(plan: Plan) -> list[Bucket]:
    """Number the items of each bucket, and partition its interactions by user."""
    buckets: list[Bucket] = []
    start = 0
    for number in range(plan.n_buckets):
        plan.progress("numbering items", number, plan.n_buckets)
        target = plan.work / "numbered-items" / f"{number:05d}"
        if not (target / "side.parquet").exists():
            rows = _bucket_rows(plan, "interactions", number)
            side = _side_of(plan, "items", number, rows["item"] if rows is not None else None, plan.schema.items)
            with new_folder(target) as new:
                side.write_parquet(new / "side.parquet", compression="lz4")
                if rows is not None:
                    numbered = _with_numbers(rows, "item", side, start)
                    partition_rows(plan, numbered, numbered["user"], new / "by-user")
        buckets.append(_bucket(target, start))
        start += buckets[-1].n
    if start > np.iinfo(np.int32).max:
        raise DataError(f"{start:,} items are more than int32 can number.")
    return buckets


def assign_user_ids(plan: Plan) -> list[Bucket]:
    """Number the users of each bucket; its interactions, repeats merged, become rows.parquet, and what is history alone
    history.parquet."""
    buckets: list[Bucket] = []
    start = 0
    n_merged = 0
    for number in range(plan.n_buckets):
        plan.progress("numbering users", number, plan.n_buckets)
        target = plan.work / "numbered-users" / f"{number:05d}"
        if not (target / "side.parquet").exists():
            rows = read_all(sorted((plan.work / "numbered-items").glob(f"[0-9]*/by-user/{number:05d}.parquet")))
            side = _side_of(plan, "users", number, rows["user"] if rows is not None else None, plan.schema.users)
            with new_folder(target) as new:
                side.write_parquet(new / "side.parquet", compression="lz4")
                n_repeats = _write_shard(plan, _with_numbers(rows, "user", side, start), new) if rows is not None else 0
                write_text(new / "done.json", json.dumps({"merged": n_repeats}))
        n_merged += int(read_done(target / "done.json")["merged"])
        buckets.append(_bucket(target, start))
        start += buckets[-1].n
    if n_merged:
        plan.notes.append(merged_warning(n_merged))
    return buckets


def _bucket(folder: Path, start: int) -> Bucket:
    return Bucket(start, count_work(folder / "side.parquet"))


def _with_numbers(rows: pl.DataFrame, column: str, side: pl.DataFrame, start: int) -> pl.DataFrame:
    """The rows with the ids of `column` replaced by the numbers of its side, which count from `start`."""
    numbers = pl.DataFrame({column: side["id"], "number": np.arange(start, start + side.height, dtype=np.int32)})
    return rows.join(numbers, on=column, how="left", maintain_order="left").drop(column).rename({"number": column})


def _write_shard(plan: Plan, rows: pl.DataFrame, folder: Path) -> int:
    """Write a bucket's interactions in the order of the source, and beside them the rows that count as history alone, as a
    Dataset in memory has both; returns how many repeats were merged."""
    rows, spec = rows.sort("position"), plan.schema.interactions
    if "is_target" not in rows.columns:
        rows = rows.with_columns(pl.lit(True).alias("is_target"), pl.lit(True).alias("is_history"))
    marks = [] if spec.has_targets_beside_history and spec.event is not None else ["is_history"]
    context_names = [name for name in rows.columns if name.startswith("context ")]
    targets = rows.filter("is_target")
    table, context = targets.drop(context_names, "position", "is_target", *marks), targets.select(context_names)
    places, others = (flags.arg_true().to_numpy().astype(np.int64) for flags in (rows["is_target"], ~rows["is_target"]))
    kept, repeats = places, np.empty(0, np.int64)
    if spec.repeats == "merge" and table.height:
        table, context, latest = merge_repeats(table, context)
        kept = places[latest]
        counts = (targets["positive"] & targets["is_history"]).to_numpy()
        repeats = np.setdiff1d(places[counts], kept, assume_unique=True)
    with_context = table.with_columns(context.iter_columns()) if context_names else table
    with_context.write_parquet(folder / "rows.parquet", compression="lz4")
    if len(repeats) + len(others):
        history_alone(rows, kept, repeats, others).write_parquet(folder / "history.parquet", compression="lz4")
    return targets.height - table.height


def _bucket_rows(plan: Plan, name: str, number: int) -> pl.DataFrame | None:
    return read_all(sorted((plan.work / name).glob(f"[0-9]*/{number:05d}.parquet")))


def _side_of(plan: Plan, name: str, number: int, named: pl.Series | None, spec: SideSchema | None) -> pl.DataFrame:
    """The entities of a bucket: those of its table, then those that only interactions name."""
    listed = _bucket_rows(plan, name, number) if spec is not None else None
    if listed is None:
        listed = pl.DataFrame(schema={"id": pl.String})
    repeated = listed["id"].is_duplicated()
    if repeated.any():
        repeated_id = listed["id"][int(repeated.arg_max() or 0)]
        raise DataError(
            f"{spec.path if spec else name}: the id {repeated_id!r} occurs more than once; "
            f"each of the {name} may have one row only."
        )
    listed = listed.with_columns(pl.lit(True).alias("in_table"))
    if named is None:
        return listed
    extra = named.unique().sort()  # as in memory
    extra = extra.filter(~extra.is_in(listed["id"].implode()))
    unlisted = pl.DataFrame({"id": extra}).with_columns(pl.lit(False).alias("in_table"))
    return pl.concat([listed, unlisted], how="diagonal")
