"""A prepared folder as a Dataset, Split and Encoder in memory: what a run keeps for recommending.

Field values come back from their attribute rows, so a value too rare to have a row is missing here, and the attribute tables
themselves are kept as they were prepared.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from gmlfm.data.attributes import FIRST_VALUE, AttributeTable, FieldCode, Part
from gmlfm.data.dataset import Dataset, Side
from gmlfm.data.encoding import Encoded, Encoder
from gmlfm.data.prepared import PreparedData, Shard
from gmlfm.data.schema import Field, InteractionsSchema, Schema, SideSchema
from gmlfm.data.splits import TEST, TRAIN, UNUSED, VALIDATION, Split


def restore(prepared: PreparedData) -> tuple[Dataset, Split, Encoder, Encoded]:
    info = prepared.info
    shards = list(prepared.shards())
    context = AttributeTable(
        np.concatenate([one.context.ids for one in shards]), np.concatenate([one.context.values for one in shards])
    )
    encoded = Encoded(prepared.users, context, prepared.items)
    named = {
        "user": pl.concat(prepared.ids("users", at) for at in range(len(info.users))),
        "item": pl.concat(prepared.ids("items", at) for at in range(len(info.items))),
    }
    encoder = Encoder(
        info.fields,
        tuple(_texts(at, one, prepared, named, encoded) for at, one in enumerate(info.fields)),
        named["user"]["id"],
        named["item"]["id"],
        info.user_id_type,  # type: ignore[arg-type]
        info.item_id_type,  # type: ignore[arg-type]
    )
    data = Dataset(
        _schema(info.name, info.fields, info.columns),
        _interactions(shards),
        encoder.decode_part("context", context),
        _side("user", encoder, encoded.user, named["user"]),
        _side("item", encoder, encoded.item, named["item"]),
        info.notes,
    )
    return data, _split(prepared, data, shards), encoder, encoded


def _interactions(shards: Sequence[Shard]) -> pl.DataFrame:
    frames = [pl.DataFrame({"user": one.users, "item": one.items}).hstack(one.columns) for one in shards]
    return pl.concat(frames)


def _texts(at: int, field: FieldCode, prepared: PreparedData, named: dict[str, pl.DataFrame], encoded: Encoded) -> pl.Series:
    """values.parquet has no texts of ids: the entity whose rows begin with a row has its id."""
    if field.kind != "id":
        return prepared.values.filter(pl.col("field") == at)["value"]
    table = encoded.user if field.part == "user" else encoded.item
    places = table.ids[:, 0].astype(np.int64) - field.offset - FIRST_VALUE
    entities = np.flatnonzero(places >= 0)
    order: npt.NDArray[np.int64] = np.empty(field.n_values, np.int64)
    order[places[entities]] = entities
    return named[field.part]["id"].gather(order).alias("value")


def _side(part: Part, encoder: Encoder, table: AttributeTable, named: pl.DataFrame) -> Side:
    fields = encoder.decode_part(part, table).drop(part)
    titles = named["title"] if "title" in named.columns else None
    kind = encoder.user_id_type if part == "user" else encoder.item_id_type
    return Side(named["id"], kind, fields, titles, named.height)


def _schema(name: str, codes: Sequence[FieldCode], columns: Sequence[str]) -> Schema:
    def declared(part: Part) -> tuple[Field, ...]:
        return tuple(
            Field(one.name, one.kind, weighting=one.weighting) for one in codes if one.part == part and one.kind != "id"
        )

    time, label, weight = (name if name in columns else None for name in ("time", "label", "weight"))
    return Schema(
        InteractionsSchema(user="user", item="item", time=time, label=label, weight=weight, context=declared("context")),
        name,
        SideSchema(id="user", fields=declared("user")),
        SideSchema(id="item", fields=declared("item")),
    )


def _split(prepared: PreparedData, data: Dataset, shards: Sequence[Shard]) -> Split:
    parts = np.concatenate([one.parts for one in shards])
    train, validation, test, unused = (np.flatnonzero(parts == part) for part in (TRAIN, VALIDATION, TEST, UNUSED))
    options = {"prepared": prepared.info.source_hash}
    return Split(prepared.info.split, train, validation, test, unused, options, data.content_hash)
