"""A run with more items in the catalogue, without training."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from gmlfm.data.columns import Origin, as_field, as_ids, as_text
from gmlfm.data.dataset import Side
from gmlfm.data.interop import as_frame
from gmlfm.data.profiles import has_decimal_comma
from gmlfm.data.schema import Field, SideSchema
from gmlfm.errors import DataError, OptionError, did_you_mean
from gmlfm.fitting import FittedRun

_ORIGIN = Origin("the new items")


def with_items(run: FittedRun, items: Any, *, update: bool = False) -> FittedRun:
    """The run with more items, known by their attributes alone.

    update: items of the catalogue may be among them; they take over the columns that the table has.
    """
    if not run.model.inputs.attributes:
        raise OptionError(f"'{run.settings.model}' knows items by their ids alone; new ones need a model with attributes.")
    schema, side = run.data.schema.items, run.data.items
    if schema is None:
        raise OptionError("the data have no item table, so a new item could only be unknown in everything.")
    table = as_frame(items, "items")
    ids = _given_ids(table, schema)
    numbers = run.encoder.item_numbers(ids.to_list())
    if (numbers >= 0).any() and not update:
        raise DataError(
            f"the item '{ids[int((numbers >= 0).argmax())]}' is in the catalogue already; leave it out, or change it with "
            "update=True (gmlfm add-items --update)."
        )
    is_new, columns = numbers < 0, {}
    for field in schema.fields:
        given = _given_column(table, field, side, is_new)
        columns[field.name] = _grown(side.fields[field.name], given, numbers, keeps=field.name not in table.columns)
    fields = pl.DataFrame(columns).cast(side.fields.schema) if columns else side.fields
    titles = side.titles
    if titles is not None:
        titles = _grown(titles, _titles(table, schema.title, len(ids)), numbers, keeps=schema.title not in table.columns)
    n_new = int(is_new.sum())
    listed = None if side.listed is None else side.listed.extend_constant(None, n_new)  # there from now on: no start
    all_ids = pl.concat([side.ids, ids.filter(is_new).alias(side.ids.name)])
    grown = Side(all_ids, side.id_type, fields, titles, side.n_listed, listed)
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


def with_new_items(run: FittedRun, items: Any) -> FittedRun:
    """The run with those of the items that its catalogue does not have; the others stay as they are."""
    table, schema = as_frame(items, "items"), run.data.schema.items
    if schema is not None and schema.id in table.columns:
        ids = as_ids(table[schema.id], _ORIGIN)[0].to_list()
        is_known = run.encoder.item_numbers(ids) >= 0
        if is_known.all():
            return run
        table = table.filter(~is_known)
    return with_items(run, table)


def _grown(old: pl.Series, given: pl.Series, numbers: npt.NDArray[np.int64], *, keeps: bool) -> pl.Series:
    """The old values with the given ones in their place, and those of new items (number -1) behind. keeps: old ones stay."""
    places, is_new = np.arange(len(old)), numbers < 0
    if not keeps:
        places[numbers[~is_new]] = len(old) + np.flatnonzero(~is_new)
    both = pl.concat([old, given.cast(old.dtype).alias(old.name)])
    return both.gather(np.concatenate([places, len(old) + np.flatnonzero(is_new)]))


def _given_ids(table: pl.DataFrame, schema: SideSchema) -> pl.Series:
    known = [schema.id, *(field.name for field in schema.fields), *([schema.title] if schema.title else [])]
    for name in table.columns:
        if name not in known:
            hint = did_you_mean(name, known)
            message = f"the new items have a column '{name}', which the model does not know: it is left out"
            warnings.warn(f"{message}{hint if 'did you mean' in hint else '.'}", stacklevel=5)
    if schema.id not in table.columns:
        raise DataError(f"the new items have no column '{schema.id}', which names them.")
    ids, _ = as_ids(table[schema.id], _ORIGIN)
    is_empty = ids.is_null() | (ids.str.strip_chars() == "")
    if is_empty.any():
        where = _ORIGIN.locate(int(is_empty.arg_max() or 0))
        raise DataError(f"{where}: the column '{schema.id}' is empty; every new item needs an id, nothing was added.")
    is_repeated = ids.is_duplicated()
    if is_repeated.any():
        raise DataError(f"the item '{ids[int(is_repeated.arg_max() or 0)]}' comes twice among the new items; give it once.")
    return ids


def _given_column(table: pl.DataFrame, field: Field, side: Side, is_new: npt.NDArray[np.bool_]) -> pl.Series:
    if field.name in table.columns:
        return _finite(as_field(table[field.name], field, _ORIGIN, _decimal(table[field.name], field)).alias(field.name))
    if is_new.any():
        warnings.warn(f"the new items have no column '{field.name}'; it counts as missing.", stacklevel=5)
    return pl.Series(field.name, [None], dtype=side.fields[field.name].dtype).new_from_index(0, len(is_new))


def _decimal(values: pl.Series, field: Field) -> str | None:
    """A comma in a text file whose numbers have one, as in the table that the run was trained with, perhaps."""
    is_text = field.kind == "number" and values.dtype == pl.String
    return "," if is_text and has_decimal_comma(values.drop_nulls().str.strip_chars()) else None


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
