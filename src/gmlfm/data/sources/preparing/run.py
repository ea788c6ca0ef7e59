"""Runs the steps of a preparation in their order, and writes the description of the prepared folder."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import polars as pl

from gmlfm.data.encoding import Encoder
from gmlfm.data.prepared import FORMAT, PreparedData, PreparedInfo, ShardInfo
from gmlfm.data.schema import Schema
from gmlfm.data.sources.chunks import count_rows
from gmlfm.data.sources.preparing.assign_ids import assign_item_ids, assign_user_ids
from gmlfm.data.sources.preparing.encoding import encode_interactions, encode_side
from gmlfm.data.sources.preparing.learning import learn
from gmlfm.data.sources.preparing.partition import partition_interactions, partition_side
from gmlfm.data.sources.preparing.plan import Bucket, Plan, Step
from gmlfm.data.sources.preparing.splitting import Splitter, check_prepared_split, choose_split
from gmlfm.data.splits import AUTO
from gmlfm.errors import DataError
from gmlfm.storage import write_text

_ROWS_PER_BUCKET = 1_000_000
_MOST_BUCKETS = 512


def prepare(
    schema: Schema,
    folder: Path,
    out: Path,
    *,
    split: str = AUTO,
    rows_per_bucket: int = _ROWS_PER_BUCKET,
    progress: Step | None = None,
) -> PreparedData:
    """Prepare the files that `schema` names relative to `folder` into `out`; goes on where an earlier try stopped."""
    check_prepared_split(split)
    if out.is_file():
        raise DataError(f"{out} is a file; name a folder.")
    if (out / "prepared.json").exists() and (out / ".work").exists():
        return _close(out)  # an earlier try was stopped before it had removed its intermediate files
    if (out / "prepared.json").exists():
        raise DataError(f"{out} is prepared already; remove it, or choose another folder.")
    if out.exists() and any(out.iterdir()) and not (out / ".work").exists():
        raise DataError(f"{out} holds other files; choose a new folder.")
    assert schema.interactions.path is not None
    n_rows = count_rows(schema.interactions.path, folder)
    n_buckets = min(_MOST_BUCKETS, math.ceil(n_rows / rows_per_bucket))
    plan = Plan(schema, folder, out, split, n_buckets, rows_per_bucket, progress or (lambda *_: None))
    _begin(plan)
    partition_side(plan, "items", schema.items)
    partition_side(plan, "users", schema.users)
    partition_interactions(plan)
    items = assign_item_ids(plan)
    users = assign_user_ids(plan)
    splitter = choose_split(plan, _total(items))
    encoder, id_rows = learn(plan, splitter, _total(users), _total(items))
    widths: dict[str, int] = {}
    item_shards = encode_side(plan, "items", "item", items, encoder, id_rows["item"], widths)
    user_shards = encode_side(plan, "users", "user", users, encoder, id_rows["user"], widths)
    shards = encode_interactions(plan, splitter, encoder, widths)
    return _finish(plan, splitter, encoder, widths, user_shards, item_shards, shards)


def _begin(plan: Plan) -> None:
    choices = {"split": plan.split, "n_buckets": plan.n_buckets, "rows_per_chunk": plan.rows_per_chunk}
    stamp = json.dumps({"format": FORMAT, "source": plan.source_hash(), **choices})
    path = plan.work / "stamp.json"
    if path.exists() and path.read_text(encoding="utf-8") != stamp:
        # The files have changed since, or they were partitioned otherwise: the intermediate files are of no use.
        for name in (".work", "users", "items", "interactions"):
            shutil.rmtree(plan.out / name, ignore_errors=True)
        plan.notes.append("an unfinished preparation of other data was thrown away.")
    write_text(path, stamp)


def _total(buckets: list[Bucket]) -> int:
    return buckets[-1].start + buckets[-1].n


def _finish(
    plan: Plan,
    splitter: Splitter,
    encoder: Encoder,
    widths: dict[str, int],
    users: tuple[ShardInfo, ...],
    items: tuple[ShardInfo, ...],
    shards: tuple[ShardInfo, ...],
) -> PreparedData:
    encoder.values_table().write_parquet(plan.out / "values.parquet")
    columns = pl.read_parquet_schema(plan.out / "interactions" / f"{shards[0].name}.parquet")
    done = json.loads((plan.work / "interactions" / "done.json").read_text(encoding="utf-8"))
    info = PreparedInfo(
        name=plan.schema.name,
        source_hash=plan.source_hash(),
        split=splitter.name,
        n_users=sum(shard.rows for shard in users),
        n_items=sum(shard.rows for shard in items),
        n_interactions=sum(shard.rows for shard in shards),
        fields=encoder.fields,
        widths=widths,
        columns=tuple(columns),
        users=users,
        items=items,
        interactions=shards,
        user_id_type=done["user"],
        item_id_type=done["item"],
        sells_once=splitter.sells_once,
        repeats=plan.schema.interactions.repeats,
        min_count=dict(plan.schema.min_count),
        notes=tuple(dict.fromkeys([*_side_notes(plan), *done["notes"], *plan.notes])),
    )
    info.write(plan.out)
    return _close(plan.out)


def _close(out: Path) -> PreparedData:
    prepared = PreparedData(out)
    _ = prepared.users, prepared.items  # writes the memory maps, so that the first reader need not
    shutil.rmtree(out / ".work")
    return prepared


def _side_notes(plan: Plan) -> list[str]:
    files = [plan.work / name / "done.json" for name in ("users", "items")]
    return [note for file in files if file.exists() for note in json.loads(file.read_text(encoding="utf-8"))["notes"]]
