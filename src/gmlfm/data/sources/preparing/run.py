"""Runs the steps of a preparation in their order, and writes the description of the prepared folder."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gmlfm.data.encoding import Encoder
from gmlfm.data.prepared import CACHE, FORMAT, PreparedData, PreparedInfo, ShardInfo
from gmlfm.data.schema import Schema
from gmlfm.data.sources.chunks import count_rows
from gmlfm.data.sources.preparing.assign_ids import assign_item_ids, assign_user_ids
from gmlfm.data.sources.preparing.encoding import encode_interactions, encode_side, write_history
from gmlfm.data.sources.preparing.learning import learn
from gmlfm.data.sources.preparing.partition import partition_interactions, partition_side
from gmlfm.data.sources.preparing.plan import Bucket, Plan, Step, read_done
from gmlfm.data.sources.preparing.splitting import Splitter, check_prepared_split, choose_split
from gmlfm.data.splits import AUTO
from gmlfm.errors import DataError, OptionError
from gmlfm.locking import locked
from gmlfm.reading import READ_ERRORS, file_status, is_folder, kind_of, reason, scan_parquet
from gmlfm.storage import new_file, reporting_write_errors, sha256_of, write_text

_ROWS_PER_BUCKET = 1_000_000
_MOST_BUCKETS = 512
_LEAST_ROWS_PER_FILE = 20
_LOCK = ".lock"


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
    if rows_per_bucket < 1:
        raise OptionError(f"rows_per_bucket is {rows_per_bucket}; expected 1 or more.")
    with _alone(out):
        return _prepare(schema, folder, out, split, rows_per_bucket, progress)


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    """No other preparation into the same folder; what came to nothing leaves no folder."""
    try:
        str(out).encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"{out} is no name that files can be written under ({reason(error)}); choose another folder."
        ) from error
    status = file_status(out)
    if status is not None and not is_folder(out):
        raise DataError(f"{out} is {kind_of(status)}; name a folder.")
    if status is not None and (out / "prepared.json").exists() and not (out / ".work").exists():
        raise DataError(f"{out} is prepared already; remove it, or choose another folder.")
    if status is not None and not (out / ".work").exists() and any(path.name != _LOCK for path in out.iterdir()):
        raise DataError(f"{out} holds other files; choose a new folder.")
    with locked(out, _LOCK, 0.0, "is being prepared"):
        try:
            yield
        finally:
            (out / _LOCK).unlink(missing_ok=True)
            if status is None:
                with suppress(OSError):
                    out.rmdir()


def _prepare(schema: Schema, folder: Path, out: Path, split: str, rows_per_bucket: int, progress: Step | None) -> PreparedData:
    if (out / "prepared.json").exists() and (out / ".work").exists():
        return _close(out)  # an earlier try was stopped before it had removed its intermediate files
    if (out / "prepared.json").exists():
        raise DataError(f"{out} has been prepared by another process meanwhile.")
    assert schema.interactions.path is not None
    n_rows = count_rows(schema.interactions.path, folder)
    n_buckets, rows_per_chunk = _pieces(n_rows, rows_per_bucket)
    plan = Plan(schema, folder, out, split, n_buckets, rows_per_chunk, progress or (lambda *_: None))
    is_continued = plan.work.is_dir()
    with reporting_write_errors(out):
        _begin(plan)
    try:
        return _run(plan)
    except READ_ERRORS as error:
        if not is_continued:
            raise
        raise DataError(
            f"{plan.work}, which an earlier try left, is damaged ({reason(error)}); remove {out} and prepare the data again."
        ) from error


def _run(plan: Plan) -> PreparedData:
    schema = plan.schema
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
    return _finish(plan, splitter, encoder, widths, user_shards, item_shards, shards, write_history(plan))


def _pieces(n_rows: int, rows_per_bucket: int) -> tuple[int, int]:
    """How many buckets, and how many rows of a Parquet table are read at a time.

    A bucket of items is partitioned into as many of users, and a chunk into as many files: with fewer than some rows a file
    on average, a wish for a row at a time would write and read files for hours.
    """
    n_buckets = max(1, min(_MOST_BUCKETS, -(-n_rows // rows_per_bucket), math.isqrt(n_rows // _LEAST_ROWS_PER_FILE)))
    return n_buckets, max(min(rows_per_bucket, n_rows), _LEAST_ROWS_PER_FILE * n_buckets)


def _begin(plan: Plan) -> None:
    choices = {"split": plan.split, "n_buckets": plan.n_buckets, "rows_per_chunk": plan.rows_per_chunk}
    stamp = json.dumps({"format": FORMAT, "source": plan.source_hash(), **choices})
    path = plan.work / "stamp.json"
    if path.exists() and path.read_bytes() != stamp.encode():
        # The files have changed since, or they were partitioned otherwise: the intermediate files are of no use.
        for name in (".work", "users", "items", "interactions", "history"):
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
    history: tuple[ShardInfo, ...],
) -> PreparedData:
    with new_file(plan.out / "values.parquet") as draft:
        encoder.values_table().write_parquet(draft)
    columns = scan_parquet(plan.out / "interactions" / f"{shards[0].name}.parquet").collect_schema()
    done = read_done(plan.work / "interactions" / "done.json")
    by_folder = {"users": users, "items": items, "interactions": shards, "history": history}
    files = ["values.parquet", *(f"{name}/{shard.name}.parquet" for name, listed in by_folder.items() for shard in listed)]
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
        history=history,
        user_id_type=done["user"],
        item_id_type=done["item"],
        sells_once=splitter.sells_once,
        repeats=plan.schema.interactions.repeats,
        ties=plan.schema.interactions.ties,
        event=plan.schema.interactions.event is not None,
        targets=plan.schema.interactions.targets,
        history_events=plan.schema.interactions.history_events,
        min_count=dict(plan.schema.min_count),
        checksums={file: sha256_of(plan.out / file) for file in files},
        notes=tuple(dict.fromkeys([*_side_notes(plan), *done["notes"], *plan.notes])),
    )
    info.write(plan.out)
    return _close(plan.out)


def _close(out: Path) -> PreparedData:
    with reporting_write_errors(out):
        for folder in (out, *(out / name for name in ("users", "items", "interactions", "history", CACHE))):
            for draft in folder.glob(".*.*"):
                draft.unlink()  # what a killed try was writing
    prepared = PreparedData(out)
    _ = prepared.users, prepared.items  # writes the memory maps, so that the first reader need not
    with reporting_write_errors(out):
        shutil.rmtree(out / ".work")
    return prepared


def _side_notes(plan: Plan) -> list[str]:
    files = [plan.work / name / "done.json" for name in ("users", "items")]
    return [note for file in files if file.exists() for note in read_done(file)["notes"]]
