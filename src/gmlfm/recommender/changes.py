"""Runs that differ from another without training: with more items in the catalogue, or without a user."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from gmlfm.data.columns import Origin, as_field, as_ids, as_text
from gmlfm.data.dataset import Dataset, Side
from gmlfm.data.encoding import Encoder
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
    )
    return replace(changed, model=run.model.over(changed.inputs.items))


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


def without_user(run: FittedRun, user: Any) -> FittedRun:
    """The run without any trace of a user: id, attributes, history and the row that learned from it."""
    if run.instances is not None:
        raise OptionError("a run of the task 'implicit' draws its instances from all users again; train it anew without them.")
    number = int(run.encoder.user_numbers([user])[0])
    if number < 0:
        raise DataError(f"the user '{user}' is unknown already.")
    is_kept = run.data.user_numbers != number
    data = _data_without(run.data, number, is_kept)
    new_place = np.cumsum(is_kept) - 1
    old = run.split
    train, validation, test, unused = (
        new_place[rows[is_kept[rows]]] for rows in (old.train, old.validation, old.test, old.unused)
    )
    split = replace(
        old,
        train=train,
        validation=validation,
        test=test,
        unused=unused,
        validation_groups=None if old.validation_groups is None else old.validation_groups[is_kept[old.validation]],
        test_groups=None if old.test_groups is None else old.test_groups[is_kept[old.test]],
        validation_candidates=_of_kept(old.validation_candidates, is_kept[old.validation]),
        test_candidates=_of_kept(old.test_candidates, is_kept[old.test]),
        data_hash=data.content_hash,
    )
    encoder, id_row = _encoder_without(run.encoder, number)
    # What only this user had can still be recommended to others.
    orphans = np.setdiff1d(run.data.seen_items, data.seen_items)
    changed = replace(
        run,
        data=data,
        split=split,
        encoder=encoder,
        encoded=encoder.encode(data),
        extra_items=(*run.extra_items, *(int(item) for item in orphans)),
    )
    return replace(changed, model=run.model.without_user(number, id_row, changed.inputs))


def _of_kept(lists: npt.NDArray[np.int32] | None, is_kept: npt.NDArray[np.bool_]) -> npt.NDArray[np.int32] | None:
    return None if lists is None else lists[is_kept]


def _data_without(data: Dataset, number: int, is_kept: npt.NDArray[np.bool_]) -> Dataset:
    is_other = np.arange(len(data.users)) != number
    side = data.users
    titles = None if side.titles is None else side.titles.filter(is_other)
    fields = side.fields.filter(is_other) if side.fields.width else side.fields
    users = Side(side.ids.filter(is_other), side.id_type, fields, titles, side.n_listed - (number < side.n_listed))
    interactions = data.interactions.filter(is_kept)
    numbers = interactions["user"].to_numpy()
    renumbered = pl.Series("user", (numbers - (numbers > number)).astype(np.int32))
    context = data.context.filter(is_kept) if data.context.width else data.context
    return replace(data, interactions=interactions.with_columns(renumbered), context=context, users=users)


def _encoder_without(encoder: Encoder, number: int) -> tuple[Encoder, int | None]:
    """The user's text leaves the vocabulary; the row stays, so that no other row moves. Returns that row, too."""
    index = next(index for index, field in enumerate(encoder.fields) if field.part == "user" and field.kind == "id")
    texts = encoder.values[index]
    place = texts.index_of(encoder.user_ids[number])
    ids = encoder.user_ids.filter(np.arange(len(encoder.user_ids)) != number)
    if place is None:
        return replace(encoder, user_ids=ids), None
    n_forgotten = sum(text.startswith("(forgotten ") for text in texts.to_list())
    # scatter writes in place, and the run before keeps its texts
    renamed = texts.clone().scatter(place, f"(forgotten {n_forgotten + 1})")
    values = tuple(renamed if field == index else texts for field, texts in enumerate(encoder.values))
    return replace(encoder, user_ids=ids, values=values), encoder.fields[index].offset + 2 + int(place)
