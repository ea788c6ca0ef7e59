"""Partitions rows into buckets by the checksum of an id, so that all rows of an id are in one bucket."""

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

from gmlfm.data.building import listing_times, moments, no_usable_row, occasion
from gmlfm.data.columns import as_field, as_ids, as_text, column
from gmlfm.data.events import EventRoles, KindTally, event_kinds
from gmlfm.data.row_filter import chosen_rows, left_out_note, named_columns, nothing_used, used_rows
from gmlfm.data.schema import Field, InteractionsSchema, ReadOptions, SideSchema
from gmlfm.data.sources.chunks import read_chunks
from gmlfm.data.sources.delimited import Broken
from gmlfm.data.sources.preparing.plan import Plan, read_done
from gmlfm.data.sources.tables import Table, is_delimited, is_parquet, matching
from gmlfm.data.times import short_date
from gmlfm.errors import DataError, SchemaError
from gmlfm.storage import new_folder, write_text


def partition_side(plan: Plan, name: Literal["items", "users"], spec: SideSchema | None) -> None:
    """Partition a side's rows by id: the id, the fields as 'field NAME', the title, and of items the listing time."""
    done = plan.work / name / "done.json"
    if spec is None or done.exists():
        return
    assert spec.path is not None
    optional = [name for name in (spec.title, spec.listed) if name]
    needed = [spec.id, *(field.name for field in spec.fields), *optional]
    types: set[str] = set()
    listed_is_float = False
    broken = Broken()
    n_rows = 0
    for index, table in enumerate(_chunks(plan, spec.path, spec.read, needed, broken)):
        plan.progress(f"reading {name}", index, index + 1)
        n_rows += table.frame.height
        ids, id_type = as_ids(column(table.frame, spec.id, table.origin, f"[{name}] id"), table.origin)
        types.add(id_type)
        if ids.null_count():
            row = int(ids.is_null().arg_max() or 0)
            raise DataError(f"{table.origin.locate(row)}: column '{spec.id}' is missing; every row of {name} needs an id.")
        columns = [ids.alias("id"), *_typed(table, spec.fields, spec.read.decimal, f"[{name}] fields", "field")]
        if spec.title:
            columns.append(as_text(column(table.frame, spec.title, table.origin, "title"), table.origin).alias("title"))
        if spec.listed:
            _refuse_ambiguous_dates(table, spec.listed, spec.listed_format, f"[{name}] listed_format")
            columns.append(listing_times(table.frame, spec, table.origin))
            listed_is_float |= columns[-1].dtype.is_float()
        partition_rows(plan, pl.DataFrame(columns), ids, plan.work / name / f"{index:06d}")
    if n_rows == 0:
        raise DataError(f"{spec.path} is empty; at least one row is needed.")
    notes = _broken_notes(broken, spec.path)
    write_text(done, json.dumps({"types": sorted(types), "listed_is_float": listed_is_float, "notes": notes}))


def partition_interactions(plan: Plan) -> None:
    """Partition the interactions, their columns typed, by item; done.json holds the types of the ids and the notes."""
    spec = plan.schema.interactions
    assert spec.path is not None
    base = plan.work / "interactions"
    if (base / "done.json").exists():
        return
    broken = Broken()
    any_positive = time_is_float = False
    names = (spec.user, spec.item, spec.time, spec.label, spec.weight, spec.event, *(field.name for field in spec.context))
    in_conditions = named_columns(spec.positive) + named_columns(spec.where)
    needed = [name for name in names if name is not None] + in_conditions
    in_conditions += [] if spec.event is None else [spec.event]
    never_met = set(in_conditions) if _is_json_lines(plan, spec.path) else set()
    tally = KindTally(spec)
    position, n_lost, n_rows, n_used, n_targets = 0, 0, 0, 0, 0
    n_missing = {"time": 0, "label": 0}
    types: dict[str, set[str]] = {"user": set(), "item": set()}
    for index, chunk in enumerate(_chunks(plan, spec.path, spec.read, needed, broken)):
        plan.progress("reading interactions", index, index + 1)
        n_rows += chunk.frame.height
        used, origin = used_rows(chunk.frame, spec, chunk.origin)
        never_met -= {name for name in never_met if chunk.frame[name].null_count() < chunk.frame.height}
        if used.height == 0:
            continue
        kinds = event_kinds(used, spec, origin)
        roles = EventRoles.of(kinds, spec, used.height)
        tally.add(kinds, roles)
        n_used += used.height
        used, origin = chosen_rows(used, roles.is_used, origin)
        table, roles = replace(chunk, frame=used, origin=origin), roles.filter(roles.is_used)
        if used.height == 0:
            continue  # without a row nothing can be said of the types of ids and times
        _refuse_ambiguous_dates(table, spec.time, spec.time_format, "[interactions] time_format")
        users, user_type = as_ids(column(table.frame, spec.user, table.origin, "user"), table.origin)
        items, item_type = as_ids(column(table.frame, spec.item, table.origin, "item"), table.origin)
        types["user"].add(user_type)
        types["item"].add(item_type)
        usable = users.is_not_null() & items.is_not_null()
        n_lost += int((~usable).sum())
        if n_lost > spec.read.tolerate:
            place = table.origin.locate(int((~usable).arg_max() or 0))
            raise DataError(f"{place}: {n_lost:,} row(s) so far have no user or no item, {spec.read.tolerate} are tolerated.")
        rows = pl.DataFrame(
            [
                users.alias("user"),
                items.alias("item"),
                pl.Series("position", np.arange(position, position + table.frame.height)),
                *moments(table.frame, spec, table.origin, []),
            ]
        )
        frame = _with_occasions(rows, table, spec, roles).drop_nulls(["user", "item"])
        n_targets += int((roles.is_target & usable).sum())
        any_positive = any_positive or bool(frame["positive"].any())
        time_is_float |= "time" in frame.columns and frame["time"].dtype.is_float()
        for name in n_missing:
            n_missing[name] += _n_missing(frame, name)
        position += table.frame.height
        partition_rows(plan, frame, frame["item"], base / f"{index:06d}")
    if never_met:  # a JSON line may lack a key, so that no chunk alone can tell a name that is wrong
        name = sorted(never_met)[0]
        key = "event" if name == spec.event else "a condition"
        raise SchemaError(f"{spec.path} has no value of '{name}', which {key} of [interactions] names.")
    if n_rows > n_used == 0:
        raise DataError(nothing_used(spec.path, spec.where))
    tally.check(spec.path)
    if n_targets == 0:
        raise DataError(no_usable_row(spec.path, spec))
    if not any_positive:
        raise DataError(f'{spec.path}: no row fulfils positive = "{spec.positive}", so there is nothing to recommend.')
    notes = _broken_notes(broken, spec.path) + [f"{n:,} interactions have no {name}." for name, n in n_missing.items() if n]
    if n_rows > n_used:
        notes.append(left_out_note(n_rows - n_used, n_rows, spec.where))
    notes += tally.notes()
    if n_lost:
        notes.append(f"{n_lost:,} row(s) of the interactions have no user or no item; left out, as tolerate allows.")
    id_types = {side: "integer" if _all_integer(plan, side, types[side]) else "text" for side in types}
    write_text(base / "done.json", json.dumps({**id_types, "time_is_float": time_is_float, "notes": notes}))


def _with_occasions(rows: pl.DataFrame, table: Table, spec: InteractionsSchema, roles: EventRoles) -> pl.DataFrame:
    """The rows with their label, weight, positive and context. Where events are declared, those that are history alone have
    none of these, and is_target and is_history tell them apart."""
    targets, origin = chosen_rows(table.frame, roles.is_target, table.origin)
    about = [
        *occasion(targets, spec, origin, [], whole=False),
        *_typed(replace(table, frame=targets, origin=origin), spec.context, spec.read.decimal, "context", "context"),
    ]
    frame = rows.filter(roles.is_target).with_columns(about)
    if spec.event is None:
        return frame
    is_history = roles.is_history.filter(roles.is_target).alias("is_history")
    frame = frame.with_columns(pl.lit(True).alias("is_target"), is_history)
    return pl.concat([frame, rows.filter(~roles.is_target).with_columns(pl.lit(False).alias("is_target"))], how="diagonal")


def _n_missing(frame: pl.DataFrame, name: str) -> int:
    """Of how many rows a column is not known that should be."""
    if name not in frame.columns:
        return 0
    has_labels = name == "label" and "is_target" in frame.columns
    return (frame.filter("is_target") if has_labels else frame)[name].null_count()


def _refuse_ambiguous_dates(table: Table, name: str | None, time_format: str | None, key: str) -> None:
    """Whether 03/04 is March or April is decided by the whole column, which is never read at once here."""
    if name is None or time_format is not None or name not in table.frame.columns:
        return
    example = short_date(table.frame[name])
    if example is not None:
        raise DataError(
            f"{table.origin.name}: column '{name}' holds dates such as {example!r}, whose order of "
            f'day and month must be declared when a table is read in pieces; set {key}, such as "%d/%m/%Y".'
        )


def _all_integer(plan: Plan, side: str, types: set[str]) -> bool:
    done = plan.work / f"{side}s" / "done.json"
    listed = set(read_done(done)["types"]) if done.exists() else set()
    return types | listed == {"integer"}


def _broken_notes(broken: Broken, path: str) -> list[str]:
    if not broken.count:
        return []
    place = f"the first is line {broken.first_line} ({broken.first_reason})"
    return [f"{path}: {broken.count:,} broken line(s) left out, {place}."]


def _chunks(plan: Plan, path: str, read: ReadOptions, needed: list[str], broken: Broken) -> Iterator[Table]:
    """The chunks of a table; their broken lines are added up in `broken`."""
    options = read
    if _is_json_lines(plan, path):
        options = replace(read, columns=tuple(dict.fromkeys(needed)))  # a JSON line may lack a key
    for table in read_chunks(path, plan.folder, options, plan.rows_per_chunk):
        for _, in_chunk in table.broken:
            broken.merge(in_chunk)
        yield table


def _is_json_lines(plan: Plan, path: str) -> bool:
    first_file = matching(path, plan.folder)[0]
    return not is_delimited(first_file) and not is_parquet(first_file)


def partition_rows(plan: Plan, frame: pl.DataFrame, ids: pl.Series, target: Path) -> None:
    """Write one file for each bucket that has rows, NUMBER.parquet."""
    if target.exists():
        return
    buckets = _bucket_of(ids, plan.n_buckets)
    order = np.argsort(buckets, kind="stable")
    edges = np.searchsorted(buckets[order], np.arange(plan.n_buckets + 1))
    with new_folder(target) as new:
        for number in range(plan.n_buckets):
            rows = order[edges[number] : edges[number + 1]]
            if len(rows):
                frame[rows].write_parquet(new / f"{number:05d}.parquet", compression="lz4")


def _typed(table: Table, declared: tuple[Field, ...], decimal: str | None, needed_for: str, prefix: str) -> list[pl.Series]:
    """The declared fields as 'PREFIX NAME', so that no field's name equals one of our columns'."""
    columns = [column(table.frame, field.name, table.origin, needed_for) for field in declared]
    typed = [as_field(values, field, table.origin, decimal) for values, field in zip(columns, declared, strict=True)]
    return [values.alias(f"{prefix} {field.name}") for values, field in zip(typed, declared, strict=True)]


def _bucket_of(ids: pl.Series, n_buckets: int) -> npt.NDArray[np.int64]:
    """By CRC-32, the same on every machine and with every version."""
    if n_buckets == 1:
        return np.zeros(len(ids), np.int64)
    distinct = ids.unique()
    checksums = np.fromiter((zlib.crc32(text.encode()) for text in distinct.to_list()), np.int64, len(distinct))
    buckets = pl.DataFrame({"id": distinct, "bucket": checksums % n_buckets})
    return pl.DataFrame({"id": ids}).join(buckets, on="id", how="left", maintain_order="left")["bucket"].to_numpy()
