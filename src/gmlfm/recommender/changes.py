"""A run with more items in the catalogue, without training."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import polars as pl

from gmlfm.data.columns import Origin, as_field, as_ids, as_text
from gmlfm.data.dataset import Side
from gmlfm.data.interop import as_frame
from gmlfm.data.schema import SideSchema
from gmlfm.errors import DataError, OptionError, did_you_mean
from gmlfm.fitting import FittedRun

_ORIGIN = Origin("the new items")


def with_items(run: FittedRun, items: Any) -> FittedRun:
    """The run with more items, known by their attributes alone."""
    if not run.model.inputs.attributes:
        raise OptionError(f"'{run.settings.model}' knows items by their ids alone; new ones need a model with attributes.")
    schema, side = run.data.schema.items, run.data.items
    if schema is None:
        raise OptionError("the data have no item table, so a new item could only be unknown in everything.")
    table = as_frame(items, "items")
    ids = _new_ids(table, schema, side)
    columns = [_new_column(table, field, side, len(ids)) for field in schema.fields]
    fields = pl.concat([side.fields, pl.DataFrame(columns).cast(side.fields.schema)]) if columns else side.fields
    titles = None if side.titles is None else pl.concat([side.titles, _titles(table, schema.title, len(ids))])
    listed = None if side.listed is None else side.listed.extend_constant(None, len(ids))  # there from now on: no start
    grown = Side(pl.concat([side.ids, ids.alias(side.ids.name)]), side.id_type, fields, titles, side.n_listed, listed)
    data = replace(run.data, items=grown)
    encoder = replace(run.encoder, item_ids=grown.ids)
    encoded = replace(run.encoded, item=encoder.encode_part("item", grown.ids, grown.fields, len(grown)))
    changed = replace(
        run,
        data=data,
        split=replace(run.split, data_hash=data.content_hash),
        encoder=encoder,
        encoded=encoded,
        extra_items=(*run.extra_items, *range(len(side), len(grown))),
        n_added_items=run.n_added_items + len(ids),
    )
    return replace(changed, model=run.model.over(changed.inputs.items))


def _new_ids(table: pl.DataFrame, schema: SideSchema, side: Side) -> pl.Series:
    known = [schema.id, *(field.name for field in schema.fields), *([schema.title] if schema.title else [])]
    for name in table.columns:
        if name not in known:
            raise DataError(f"the new items have a column '{name}', which the model does not know{did_you_mean(name, known)}")
    if schema.id not in table.columns:
        raise DataError(f"the new items have no column '{schema.id}', which names them.")
    ids, _ = as_ids(table[schema.id], _ORIGIN)
    is_empty = ids.is_null() | (ids.str.strip_chars() == "")
    if is_empty.any():
        where = _ORIGIN.locate(int(is_empty.arg_max() or 0))
        raise DataError(f"{where}: the column '{schema.id}' is empty; every new item needs an id, nothing was added.")
    is_present = ids.is_in(side.ids.implode()) | ids.is_duplicated()
    if is_present.any():
        raise DataError(f"the item '{ids[int(is_present.arg_max() or 0)]}' is in the catalogue already, or comes twice.")
    return ids


def _new_column(table: pl.DataFrame, field: Any, side: Side, n: int) -> pl.Series:
    if field.name in table.columns:
        return _finite(as_field(table[field.name], field, _ORIGIN).alias(field.name))
    warnings.warn(f"the new items have no column '{field.name}'; it counts as missing.", stacklevel=5)
    return pl.Series(field.name, [None], dtype=side.fields[field.name].dtype).new_from_index(0, n)


def _finite(values: pl.Series) -> pl.Series:
    is_infinite = values.is_infinite().fill_null(False) if values.dtype.is_float() else None
    if is_infinite is not None and is_infinite.any():
        where = _ORIGIN.locate(int(is_infinite.arg_max() or 0))
        raise DataError(
            f"{where}: the column '{values.name}' is infinite; give a finite number, or none where it is not known."
        )
    return values


def _titles(table: pl.DataFrame, name: str | None, n: int) -> pl.Series:
    if name is None or name not in table.columns:
        return pl.Series("title", [None], dtype=pl.String).new_from_index(0, n)
    return as_text(table[name], _ORIGIN)
