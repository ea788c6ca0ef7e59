"""Dealing: rows go into buckets by the checksum of an id, so that all rows of an id meet in one bucket."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from gmlfm.data.building import occasion
from gmlfm.data.columns import as_field, as_ids, as_text, column
from gmlfm.data.schema import Field, InteractionsSchema, ReadOptions, SideSchema
from gmlfm.data.sources.chunks import read_chunks
from gmlfm.data.sources.delimited import Broken
from gmlfm.data.sources.preparing.plan import Plan
from gmlfm.data.sources.tables import Table, is_delimited, is_parquet, matching
from gmlfm.errors import DataError
from gmlfm.storage import new_folder, write_text


def deal_side(plan: Plan, name: Literal["items", "users"], spec: SideSchema | None) -> None:
    """A side's rows: id, its fields as 'field NAME' and the title, dealt by id."""
    done = plan.work / name / "done.json"
    if spec is None or done.exists():
        return
    assert spec.path is not None
    needed = [spec.id, *(one.name for one in spec.fields), *([spec.title] if spec.title else [])]
    types: set[str] = set()
    broken = Broken()
    n_rows = 0
    for at, table in enumerate(_chunks(plan, spec.path, spec.read, needed, broken)):
        plan.tell(f"reading {name}", at, at + 1)
        n_rows += table.frame.height
        ids, id_type = as_ids(column(table.frame, spec.id, table.origin, f"[{name}] id"), table.origin)
        types.add(id_type)
        if ids.null_count():
            row = int(ids.is_null().arg_max() or 0)
            raise DataError(f"{table.origin.at(row)}: column '{spec.id}' is missing; every row of {name} needs an id.")
        columns = [ids.alias("id"), *_typed(table, spec.fields, spec.read.decimal, f"[{name}] fields", "field")]
        if spec.title:
            columns.append(as_text(column(table.frame, spec.title, table.origin, "title"), table.origin).alias("title"))
        deal(plan, pl.DataFrame(columns), ids, plan.work / name / f"{at:06d}")
    if n_rows == 0:
        raise DataError(f"{spec.path} is empty; at least one row is needed.")
    write_text(done, json.dumps({"types": sorted(types), "notes": _told(broken, spec.path)}))


def deal_interactions(plan: Plan) -> None:
    """Interactions with their columns typed, dealt by item; what is worth telling goes to told.json."""
    spec = plan.schema.interactions
    assert spec.path is not None
    base = plan.work / "interactions"
    if (base / "done").exists():
        return
    broken = Broken()
    any_positive = False
    named = (spec.user, spec.item, spec.time, spec.label, spec.weight, *(one.name for one in spec.context))
    needed = None if spec.positive else [one for one in named if one is not None]
    position, lost = 0, 0
    missing = {"time": 0, "label": 0}
    types: dict[str, set[str]] = {"user": set(), "item": set()}
    for at, table in enumerate(_chunks(plan, spec.path, spec.read, needed, broken)):
        plan.tell("reading interactions", at, at + 1)
        _refuse_ambiguous_dates(table, spec)
        users, user_type = as_ids(column(table.frame, spec.user, table.origin, "user"), table.origin)
        items, item_type = as_ids(column(table.frame, spec.item, table.origin, "item"), table.origin)
        types["user"].add(user_type)
        types["item"].add(item_type)
        usable = users.is_not_null() & items.is_not_null()
        lost += int((~usable).sum())
        if lost > spec.read.tolerate:
            place = table.origin.at(int((~usable).arg_max() or 0))
            raise DataError(f"{place}: {lost:,} row(s) so far have no user or no item, {spec.read.tolerate} are tolerated.")
        frame = pl.DataFrame(
            [
                users.alias("user"),
                items.alias("item"),
                pl.Series("position", np.arange(position, position + table.frame.height)),
                *occasion(table.frame, spec, table.origin, [], whole=False),
                *_typed(table, spec.context, spec.read.decimal, "context", "context"),
            ]
        ).filter(usable)
        any_positive = any_positive or bool(frame["positive"].any())
        for name in missing:
            missing[name] += frame[name].null_count() if name in frame.columns else 0
        position += table.frame.height
        deal(plan, frame, frame["item"], base / f"{at:06d}")
    if position == lost:
        raise DataError(f"{spec.path} has no row with both a user and an item.")
    if not any_positive:
        raise DataError(f'{spec.path}: no row fulfils positive = "{spec.positive}", so there is nothing to recommend.')
    notes = _told(broken, spec.path) + [f"{n:,} interactions have no {name}." for name, n in missing.items() if n]
    if lost:
        notes.append(f"{lost:,} row(s) of the interactions have no user or no item; left out, as tolerate allows.")
    told = {side: "integer" if _all_integer(plan, side, types[side]) else "text" for side in types}
    write_text(plan.work / "told.json", json.dumps({**told, "notes": notes}))
    write_text(base / "done", "")


def _refuse_ambiguous_dates(table: Table, spec: InteractionsSchema) -> None:
    """Whether 03/04 is March or April is decided by the whole column, which is never seen whole here."""
    if spec.time is None or spec.time_format is not None or spec.time not in table.frame.columns:
        return
    times = table.frame[spec.time]
    if times.dtype == pl.String and times.str.contains(r"^\s*\d{1,2}[/-]\d{1,2}[/-]\d{4}").any():
        raise DataError(
            f"{table.origin.name}: column '{spec.time}' holds dates such as {times.drop_nulls()[0]!r}, whose order of "
            'day and month must be told when a table is read in pieces; set [interactions] time_format, such as "%d/%m/%Y".'
        )


def _all_integer(plan: Plan, side: str, met: set[str]) -> bool:
    done = plan.work / f"{side}s" / "done.json"
    listed = set(json.loads(done.read_text(encoding="utf-8"))["types"]) if done.exists() else set()
    return met | listed == {"integer"}


def _told(broken: Broken, path: str) -> list[str]:
    if not broken.count:
        return []
    first = f"the first is line {broken.first_line} ({broken.first_reason})"
    return [f"{path}: {broken.count:,} broken line(s) left out, {first}."]


def _chunks(plan: Plan, path: str, read: ReadOptions, needed: list[str] | None, broken: Broken) -> Iterator[Table]:
    """The pieces of a table; what is broken in them is added up in `broken`."""
    options = read
    first = matching(path, plan.folder)[0]
    if not is_delimited(first) and not is_parquet(first) and needed is not None:
        options = replace(read, columns=tuple(dict.fromkeys(needed)))  # a JSON line may lack a key
    for table in read_chunks(path, plan.folder, options, plan.rows_per_chunk):
        for _, one in table.broken:
            broken.merge(one)
        yield table


def deal(plan: Plan, frame: pl.DataFrame, ids: pl.Series, target: Path) -> None:
    if target.exists():
        return
    bucket = _bucket_of(ids, plan.n_buckets)
    order = np.argsort(bucket, kind="stable")
    edges = np.searchsorted(bucket[order], np.arange(plan.n_buckets + 1))
    with new_folder(target) as new:
        for number in range(plan.n_buckets):
            rows = order[edges[number] : edges[number + 1]]
            if len(rows):
                frame[rows].write_parquet(new / f"{number:05d}.parquet", compression="lz4")


def _typed(table: Table, declared: tuple[Field, ...], decimal: str | None, needed_for: str, prefix: str) -> list[pl.Series]:
    """The declared fields as 'PREFIX NAME', so that no field's name can meet one of ours."""
    columns = [column(table.frame, one.name, table.origin, needed_for) for one in declared]
    typed = [as_field(values, one, table.origin, decimal) for values, one in zip(columns, declared, strict=True)]
    return [values.alias(f"{prefix} {one.name}") for values, one in zip(typed, declared, strict=True)]


def _bucket_of(ids: pl.Series, n_buckets: int) -> npt.NDArray[np.int64]:
    """By CRC-32, the same on every machine and with every version."""
    if n_buckets == 1:
        return np.zeros(len(ids), np.int64)
    distinct = ids.unique()
    checksums = np.fromiter((zlib.crc32(one.encode()) for one in distinct.to_list()), np.int64, len(distinct))
    known = pl.DataFrame({"id": distinct, "bucket": checksums % n_buckets})
    return pl.DataFrame({"id": ids}).join(known, on="id", how="left", maintain_order="left")["bucket"].to_numpy()
