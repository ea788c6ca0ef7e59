"""Numbering: each bucket's ids get their entity numbers, first the items', then, rows dealt anew, the users'."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from gmlfm.data.building import merge_repeats, merged_warning
from gmlfm.data.schema import SideSchema
from gmlfm.data.sources.preparing.partition import deal
from gmlfm.data.sources.preparing.plan import Bucket, Plan, joined
from gmlfm.data.splits import TEST, VALIDATION
from gmlfm.errors import DataError
from gmlfm.storage import new_folder


def number_items(plan: Plan) -> list[Bucket]:
    """Items of each bucket get their numbers; its interactions go on, dealt by user."""
    buckets: list[Bucket] = []
    start = 0
    for number in range(plan.n_buckets):
        plan.tell("numbering items", number, plan.n_buckets)
        target = plan.work / "numbered-items" / f"{number:05d}"
        if not (target / "side.parquet").exists():
            met = _gather(plan, "interactions", number)
            side = _side_of(plan, "items", number, met["item"] if met is not None else None, plan.schema.items)
            with new_folder(target) as new:
                side.write_parquet(new / "side.parquet", compression="lz4")
                (new / "by-user").mkdir()
                if met is not None:
                    numbers = pl.DataFrame(
                        {"item": side["id"], "number": np.arange(start, start + side.height, dtype=np.int32)}
                    )
                    passed = (
                        met.join(numbers, on="item", how="left", maintain_order="left").drop("item").rename({"number": "item"})
                    )
                    deal(plan, passed, passed["user"], new / "by-user" / "dealt")
        n = int(pl.scan_parquet(target / "side.parquet").select(pl.len()).collect().item())
        buckets.append(Bucket(start, n))
        start += n
    if start > np.iinfo(np.int32).max:
        raise DataError(f"{start:,} items are more than int32 can number.")
    return buckets


def number_users(plan: Plan) -> list[Bucket]:
    buckets: list[Bucket] = []
    start = 0
    n_merged = 0
    for number in range(plan.n_buckets):
        plan.tell("numbering users", number, plan.n_buckets)
        target = plan.work / "numbered-users" / f"{number:05d}"
        if not (target / "side.parquet").exists():
            met = joined(sorted((plan.work / "numbered-items").glob(f"[0-9]*/by-user/dealt/{number:05d}.parquet")))
            side = _side_of(plan, "users", number, met["user"] if met is not None else None, plan.schema.users)
            with new_folder(target) as new:
                side.write_parquet(new / "side.parquet", compression="lz4")
                merged = _write_shard(plan, met, side, start, new) if met is not None else 0
                (new / "merged").write_text(str(merged))
        n_merged += int((target / "merged").read_text())
        n = int(pl.scan_parquet(target / "side.parquet").select(pl.len()).collect().item())
        buckets.append(Bucket(start, n))
        start += n
    if n_merged:
        plan.notes.append(merged_warning(n_merged))
    return buckets


def _write_shard(plan: Plan, met: pl.DataFrame, side: pl.DataFrame, start: int, folder: Path) -> int:
    numbers = pl.DataFrame({"user": side["id"], "number": np.arange(start, start + side.height, dtype=np.int32)})
    rows = met.join(numbers, on="user", how="left", maintain_order="left").drop("user").rename({"number": "user"})
    rows = rows.sort("position")
    context_names = [name for name in rows.columns if name.startswith("context ")]
    table, context = rows.drop(context_names, "position"), rows.select(context_names)
    if plan.schema.interactions.repeats == "merge":
        table, context = merge_repeats(table, context)
    whole = table.with_columns(context.iter_columns()) if context_names else table
    whole.with_columns(_parts(plan, table)).write_parquet(folder / "rows.parquet", compression="lz4")
    return met.height - table.height


def _parts(plan: Plan, table: pl.DataFrame) -> pl.Series:
    """train, validation, test as `leave-one-out` of splits.py has them, over the positives."""
    part = np.zeros(table.height, np.int8)
    if plan.split == "leave-one-out":
        keys = ["user", "time"] if "time" in table.columns else ["user"]
        chosen = table.select(*keys, "positive").with_row_index("row").filter("positive")
        ordered = chosen.sort(*keys, "row", nulls_last=False)
        counted = ordered.select(
            "row",
            from_last=pl.len().over("user") - 1 - pl.int_range(pl.len()).over("user"),
            size=pl.len().over("user"),
        ).filter(pl.col("size") >= 3)
        for wanted, place in ((TEST, 0), (VALIDATION, 1)):
            part[counted.filter(pl.col("from_last") == place)["row"].to_numpy()] = wanted
    return pl.Series("part", part)


def _gather(plan: Plan, name: str, number: int) -> pl.DataFrame | None:
    return joined(sorted((plan.work / name).glob(f"[0-9]*/{number:05d}.parquet")))


def _side_of(plan: Plan, name: str, number: int, met: pl.Series | None, spec: SideSchema | None) -> pl.DataFrame:
    """A bucket's listed entities, then those only interactions name."""
    listed = _gather(plan, name, number) if spec is not None else None
    if listed is None:
        listed = pl.DataFrame(schema={"id": pl.String})
    repeated = listed["id"].is_duplicated()
    if repeated.any():
        one = listed["id"][int(repeated.arg_max() or 0)]
        raise DataError(
            f"{spec.path if spec else name}: the id {one!r} occurs more than once; each of the {name} may have one row only."
        )
    listed = listed.with_columns(pl.lit(True).alias("listed"))
    if met is None:
        return listed
    extra = met.unique(maintain_order=True)
    extra = extra.filter(~extra.is_in(listed["id"].implode()))
    unlisted = pl.DataFrame({"id": extra}).with_columns(pl.lit(False).alias("listed"))
    return pl.concat([listed, unlisted], how="diagonal")
