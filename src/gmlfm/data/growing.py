"""A Dataset with the rows, users and items of another one that it does not have yet."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import polars as pl

from gmlfm.data.attributes import PARTS
from gmlfm.data.columns import IdType
from gmlfm.data.dataset import Dataset, Rows, Side
from gmlfm.data.event_order import places_in_file
from gmlfm.data.known_rows import are_known
from gmlfm.data.schema import Field, Schema
from gmlfm.errors import DataError

Ints = npt.NDArray[np.int32]
Flags = npt.NDArray[np.bool_]
_KINDS = ("targets", "history_events")


@dataclass(frozen=True)
class GrownData:
    """data: all numbers of users, items and rows are what they were; what is new stands behind.

    rows: the new interactions; n_history: new rows that count as history alone, n_repeats of them because the data have their
    pair already.
    """

    data: Dataset
    rows: Rows
    n_history: int
    n_repeats: int

    @property
    def n_new(self) -> int:
        return len(self.rows) + self.n_history


def grown_data(data: Dataset, other: Dataset) -> GrownData:
    """The data with what is new in another dataset of the same schema: rows that differ in user, item or time from all that
    the data have, and users and items by their ids, with their attributes.

    Of users and items that the data have, attributes that are missing are filled in; what is known stays. Where repeats are
    merged, a pair that the data have keeps its row, so that no part of a split changes; its new row counts as history alone.
    """
    check_same_schema(data.schema, other.schema)
    users, user_numbers = _grown_side(data.users, other.users)
    items, item_numbers = _grown_side(data.items, other.items)

    def renumbered(rows: pl.DataFrame) -> pl.DataFrame:
        return rows.with_columns(
            pl.Series("user", user_numbers[rows["user"].to_numpy()]), pl.Series("item", item_numbers[rows["item"].to_numpy()])
        )

    given, given_history = renumbered(other.interactions), renumbered(other.history_rows)
    is_new, is_repeat = _new_rows(data, given, other.context)
    chosen = np.flatnonzero(is_new & ~is_repeat)
    history, n_repeats = _new_history(data, given, given_history, is_repeat, is_new & ~is_repeat)
    interactions = pl.concat([data.interactions, given[chosen].select(data.interactions.columns)], how="vertical_relaxed")
    context = data.context
    if context.width:
        context = pl.concat([context, other.context[chosen].select(context.columns).cast(context.schema)])
    history_rows = data.history_rows
    if history.height:
        together = [history_rows.select(history.columns), history] if history_rows.height else [history]
        history_rows = pl.concat(together, how="vertical_relaxed")
    interactions, history_rows = _on_one_scale(interactions, history_rows)
    warnings = tuple(dict.fromkeys((*data.warnings, *other.warnings)))
    grown = replace(
        data,
        interactions=interactions,
        context=context,
        users=users,
        items=items,
        warnings=warnings,
        history_rows=history_rows,
    )
    rows = np.arange(data.n_interactions, grown.n_interactions, dtype=np.int64)
    return GrownData(grown, rows, history.height, n_repeats)


def _on_one_scale(interactions: pl.DataFrame, history_rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Times of both as decimals where those of one are."""
    frames = (interactions, history_rows)
    if any("time" not in rows.columns for rows in frames) or interactions["time"].dtype == history_rows["time"].dtype:
        return frames
    interactions, history_rows = (rows.with_columns(pl.col("time").cast(pl.Float64)) for rows in frames)
    return interactions, history_rows


def check_same_schema(schema: Schema, other: Schema) -> None:
    """Of the same fields and columns, whatever these are named in the files."""
    for part in PARTS:
        fields, others = (_listed(declared.fields_of(part)) for declared in (schema, other))
        if fields != others:
            raise DataError(
                f"the run was trained with the {part} fields {fields}, but these data have {others}; give data of the run's "
                "schema, or train anew."
            )
    expected, given = (_rules(declared) for declared in (schema, other))
    for name, value in expected.items():
        if given[name] != value:
            raise DataError(
                f"the run was trained with {name} = {value}, but these data have {name} = {given[name]}; give data of the "
                "run's schema, or train anew."
            )


def _listed(fields: tuple[Field, ...]) -> str:
    weighting = {field.name: f", {field.weighting}" if field.kind == "set" else "" for field in fields}
    return ", ".join(f"{field.name} ({field.kind}{weighting[field.name]})" for field in fields) or "(none)"


def _rules(schema: Schema) -> dict[str, str]:
    """What of a schema decides what a row is, in words."""
    spec = schema.interactions
    declared = {name: "a column" if getattr(spec, name) else "no column" for name in ("time", "label", "weight", "event")}
    kinds = {name: "all" if getattr(spec, name) is None else ", ".join(getattr(spec, name)) for name in _KINDS}
    listed = "a column" if schema.items is not None and schema.items.listed else "no column"
    return {
        **declared,
        **kinds,
        "positive": spec.positive or "all",
        "repeats": spec.repeats,
        "ties": spec.ties,
        "listed": listed,
    }


def _grown_side(side: Side, other: Side) -> tuple[Side, Ints]:
    """With the other's entities that it lacks behind its own; and the number that each of the other's has there."""
    lookup = pl.DataFrame({"id": side.ids, "number": np.arange(len(side), dtype=np.int32)})
    joined = pl.DataFrame({"id": other.ids}).join(lookup, on="id", how="left", maintain_order="left")["number"]
    is_new = joined.is_null().to_numpy()
    numbers = joined.fill_null(-1).to_numpy().astype(np.int32)
    numbers[is_new] = len(side) + np.arange(int(is_new.sum()), dtype=np.int32)
    ids = pl.concat([side.ids, other.ids.filter(is_new).alias(side.ids.name)])
    place = np.full(len(ids), -1, np.int64)  # of each among the other's
    place[numbers] = np.arange(len(other))

    def filled(values: pl.Series, given: pl.Series | None) -> pl.Series:
        longer = values.extend_constant(None, len(ids) - len(values))
        if given is None:
            return longer
        index = pl.Series(place)
        more = given.gather(index.set(index < 0, None).cast(pl.UInt32)).cast(values.dtype)
        return pl.select(pl.coalesce(longer, more).alias(values.name)).to_series()

    given = {column.name: column for column in other.fields.iter_columns()}
    fields = pl.DataFrame([filled(column, given.get(column.name)) for column in side.fields.iter_columns()])
    titles = None if side.titles is None else filled(side.titles, other.titles)
    # An item without a time of listing could be had always, which stays so.
    listed = None if side.listed is None else pl.concat([side.listed, _of_new(other.listed, is_new, side.listed.dtype)])
    id_type: IdType = "integer" if side.id_type == other.id_type == "integer" else "text"
    return Side(ids, id_type, fields, titles, side.n_listed, listed), numbers


def _of_new(values: pl.Series | None, is_new: Flags, dtype: pl.DataType) -> pl.Series:
    if values is None:
        return pl.Series([None], dtype=dtype).new_from_index(0, int(is_new.sum()))
    return values.filter(is_new).cast(dtype)


def _new_rows(data: Dataset, given: pl.DataFrame, context: pl.DataFrame) -> tuple[Flags, Flags]:
    """Of the given rows: which the data do not have, and which of these are of a pair that keeps the row it has."""
    keys = _keys(data.interactions)
    had = data.history_rows.filter(pl.col("is_had"))
    old = pl.concat([data.interactions.select(keys), *([had.select(keys)] if had.height else [])])
    is_new = ~are_known(old, given.select(keys))
    if data.schema.interactions.repeats != "merge":
        return is_new, np.zeros(given.height, bool)
    pairs, given_pairs = (
        rows.select("user", "item").hstack([column.alias(f"context {column.name}") for column in occasion.iter_columns()])
        for rows, occasion in ((data.interactions, data.context), (given, context))
    )
    return is_new, is_new & are_known(pairs, given_pairs)


def _keys(rows: pl.DataFrame) -> list[str]:
    return ["user", "item", *(["time"] if "time" in rows.columns else [])]


def _new_history(
    data: Dataset, given: pl.DataFrame, given_history: pl.DataFrame, is_repeat: Flags, is_kept: Flags
) -> tuple[pl.DataFrame, int]:
    """Rows that count as history alone, in the order of the file: those of the other data, and repeats of the data's pairs.

    is_kept: by given interaction, whether it becomes a row of the data.
    """
    keys = _keys(data.interactions)
    places, history_places = places_in_file(given.height, given_history["before"].to_numpy())
    n_before = data.n_interactions + np.concatenate([[0], np.cumsum(is_kept)]).astype(np.int64)
    counts = given["positive"] & given["is_history"] if "is_history" in given.columns else given["positive"]
    repeats = np.flatnonzero(is_repeat & counts.to_numpy())
    parts = [
        given[repeats]
        .select(keys)
        .with_columns(
            pl.Series("before", n_before[repeats]),
            pl.Series("is_had", np.ones(len(repeats), bool)),
            pl.Series("place", places[repeats]),
        )
    ]
    for is_had in (True, False):
        rows = given_history.with_columns(pl.Series("place", history_places)).filter(pl.col("is_had") == is_had)
        if rows.height == 0:
            continue
        old = data.history_rows.filter(pl.col("is_had") == is_had)
        targets = [data.interactions.select(keys)] if is_had else []
        together = [*targets, *([old.select(keys)] if old.height else [])]
        if together:
            rows = rows.filter(~are_known(pl.concat(together), rows.select(keys)))
        before = n_before[rows["before"].to_numpy()]
        parts.append(rows.with_columns(pl.Series("before", before)).select(parts[0].columns))
    history = pl.concat(parts, how="vertical_relaxed").sort("place").drop("place")
    names = ["user", "item", "before", "is_had", *(["time"] if "time" in keys else [])]
    return history.select(names).cast({"user": pl.Int32, "item": pl.Int32, "before": pl.Int64}), len(repeats)
