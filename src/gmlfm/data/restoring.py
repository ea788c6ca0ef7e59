"""A prepared folder as a Dataset, Split and Encoder in memory: what a run stores for recommending."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from gmlfm.data.attributes import FIRST_VALUE, FieldCode, Part
from gmlfm.data.columns import IdType, without_prefix
from gmlfm.data.dataset import Dataset, Side
from gmlfm.data.encoding import Encoder
from gmlfm.data.prepared import PreparedData, Shard
from gmlfm.data.schema import Field, InteractionsSchema, Schema, SideSchema
from gmlfm.data.splits import TEST, TRAIN, UNUSED, VALIDATION, Split


def restore(prepared: PreparedData) -> tuple[Dataset, Split, Encoder]:
    """Encoding the Dataset with the Encoder gives the prepared attributes again."""
    info = prepared.info
    shards = list(prepared.shards())
    users, items = prepared.side("users"), prepared.side("items")
    encoder = Encoder(
        info.fields,
        tuple(_texts(index, field, prepared, users["id"], items["id"]) for index, field in enumerate(info.fields)),
        users["id"],
        items["id"],
        info.user_id_type,  # type: ignore[arg-type]
        info.item_id_type,  # type: ignore[arg-type]
    )
    data = Dataset(
        _schema(info.name, info.fields, info.columns),
        pl.concat(pl.DataFrame({"user": shard.users, "item": shard.items}).hstack(shard.columns) for shard in shards),
        pl.concat(prepared.context(number) for number in range(prepared.n_shards)),
        _side(users, encoder.user_id_type),
        _side(items, encoder.item_id_type),
        info.notes,
    )
    return data, _split(prepared, data, shards), encoder


def _texts(index: int, field: FieldCode, prepared: PreparedData, users: pl.Series, items: pl.Series) -> pl.Series:
    """values.parquet has no texts of ids: the entity whose rows begin with a row has its id."""
    if field.kind != "id":
        return prepared.values.filter(pl.col("field") == index)["value"]
    table, ids = (prepared.users, users) if field.part == "user" else (prepared.items, items)
    places = table.ids[:, 0].astype(np.int64) - field.offset - FIRST_VALUE
    entities = np.flatnonzero(places >= 0)
    order: npt.NDArray[np.int64] = np.empty(field.n_values, np.int64)
    order[places[entities]] = entities
    return ids.gather(order).alias("value")


def _side(frame: pl.DataFrame, id_type: IdType) -> Side:
    titles = frame["title"] if "title" in frame.columns else None
    return Side(frame["id"], id_type, without_prefix(frame, "field "), titles, frame.height)


def _schema(name: str, codes: Sequence[FieldCode], columns: Sequence[str]) -> Schema:
    def declared(part: Part) -> tuple[Field, ...]:
        return tuple(
            Field(code.name, code.kind, weighting=code.weighting) for code in codes if code.part == part and code.kind != "id"
        )

    time, label, weight = (name if name in columns else None for name in ("time", "label", "weight"))
    return Schema(
        InteractionsSchema(user="user", item="item", time=time, label=label, weight=weight, context=declared("context")),
        name,
        SideSchema(id="user", fields=declared("user")),
        SideSchema(id="item", fields=declared("item")),
    )


def _split(prepared: PreparedData, data: Dataset, shards: Sequence[Shard]) -> Split:
    parts = np.concatenate([shard.parts for shard in shards])
    train, validation, test, unused = (np.flatnonzero(parts == part) for part in (TRAIN, VALIDATION, TEST, UNUSED))
    options = {"prepared": prepared.info.source_hash}
    return Split(prepared.info.split, train, validation, test, unused, options, data.content_hash)
