"""A prepared folder as a Dataset, Split and Encoder in memory: what a run stores for recommending."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from gmlfm.data.attributes import FIRST_VALUE, FieldCode
from gmlfm.data.columns import IdType, without_prefix
from gmlfm.data.dataset import Dataset, Side, Task
from gmlfm.data.encoding import Encoder
from gmlfm.data.events import no_history
from gmlfm.data.prepared import PreparedData, Shard
from gmlfm.data.splits import TEST, TRAIN, UNUSED, VALIDATION, Split


def restore(prepared: PreparedData, task: Task = "topn") -> tuple[Dataset, Split, Encoder]:
    """Encoding the Dataset with the Encoder gives the prepared attributes again. The Split has the rows that `task` reads."""
    with prepared.fitting():
        return _restored(prepared, task)


def _restored(prepared: PreparedData, task: Task) -> tuple[Dataset, Split, Encoder]:
    info = prepared.info
    shards = list(prepared.shards())
    users, items = prepared.side("users"), prepared.side("items")
    encoder = Encoder(
        info.fields,
        tuple(_texts(index, field, prepared, users["id"], items["id"]) for index, field in enumerate(info.fields)),
        users["id"],
        items["id"],
        info.user_id_type,
        info.item_id_type,
    )
    data = Dataset(
        info.schema,
        pl.concat(pl.DataFrame({"user": shard.users, "item": shard.items}).hstack(shard.columns) for shard in shards),
        pl.concat(prepared.context(number) for number in range(prepared.n_shards)),
        _side(users, encoder.user_id_type),
        _side(items, encoder.item_id_type),
        info.notes,
        _history_rows(prepared, shards),
    )
    return data, _split(prepared, data, shards, task), encoder


def _history_rows(prepared: PreparedData, shards: Sequence[Shard]) -> pl.DataFrame:
    """`before` counts the rows of all shards."""
    frames, n_before = [], 0
    for shard in shards:
        rows = prepared.history_rows(shard.number)
        frames += [rows.with_columns(pl.col("before") + n_before)] if rows.height else []
        n_before += len(shard.users)
    return pl.concat(frames) if frames else no_history()


def _texts(index: int, field: FieldCode, prepared: PreparedData, users: pl.Series, items: pl.Series) -> pl.Series:
    """values.parquet has no texts of ids: the entity whose rows begin with a row has its id."""
    if field.kind != "id":
        return prepared.values.filter(pl.col("field") == index)["value"]
    table, ids = (prepared.users, users) if field.part == "user" else (prepared.items, items)
    places = table.ids[:, 0].astype(np.int64) - field.offset - FIRST_VALUE
    entities = np.flatnonzero(places >= 0)
    order: npt.NDArray[np.int64] = np.full(field.n_values, -1, np.int64)
    order[places[entities]] = entities
    if (order < 0).any():
        raise ValueError(f"a row of {field.name} ids is nobody's")
    return ids.gather(order).alias("value")


def _side(frame: pl.DataFrame, id_type: IdType) -> Side:
    titles, listed = (frame[name] if name in frame.columns else None for name in ("title", "listed"))
    return Side(frame["id"], id_type, without_prefix(frame, "field "), titles, frame.height, listed)


def _split(prepared: PreparedData, data: Dataset, shards: Sequence[Shard], task: Task) -> Split:
    rows, parts = data.rows_for(task), np.concatenate([shard.parts for shard in shards])
    train, validation, test, unused = (rows[parts[rows] == part] for part in (TRAIN, VALIDATION, TEST, UNUSED))
    options = {"prepared": prepared.info.source_hash}
    return Split(prepared.info.split, train, validation, test, unused, options, data.content_hash)
