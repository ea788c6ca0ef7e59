"""A run that changes without training: items that enter the catalogue, and users who are forgotten."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from gmlfm.data.columns import Origin, as_field, as_ids, as_text
from gmlfm.data.dataset import Dataset, Side
from gmlfm.data.encoding import Encoder
from gmlfm.data.interop import as_frame
from gmlfm.errors import DataError, OptionError, did_you_mean
from gmlfm.fitting import FittedRun
from gmlfm.fitting.episodic import rated, with_labels
from gmlfm.fitting.run import learned_rows
from gmlfm.models.base import ClosedFormModel, Positives
from gmlfm.models.mamo import Mamo
from gmlfm.models.registry import model_info
from gmlfm.retrieval import Scorer


def with_items(fitted: FittedRun, given: Any) -> FittedRun:
    """The run with more items, known by their attributes alone."""
    if not isinstance(fitted.scores, Scorer) or not model_info(fitted.settings.model).uses_attributes:
        raise OptionError(f"'{fitted.settings.model}' knows items by their ids alone; new ones need a model with attributes.")
    schema = fitted.data.schema.items
    if schema is None:
        raise OptionError("the data have no item table, so a new item could only be unknown in everything.")
    table, origin = as_frame(given, "items"), Origin("the new items")
    side = fitted.data.items
    known = [schema.id, *(one.name for one in schema.fields), *([schema.title] if schema.title else [])]
    for name in table.columns:
        if name not in known:
            raise DataError(f"the new items have a column '{name}', which the model does not know{did_you_mean(name, known)}")
    if schema.id not in table.columns:
        raise DataError(f"the new items have no column '{schema.id}', which names them.")
    ids, _ = as_ids(table[schema.id], origin)
    nameless = ids.is_null() | (ids.str.strip_chars() == "")
    if nameless.any():
        row = int(nameless.arg_max() or 0)
        raise DataError(f"{origin.at(row)}: the column '{schema.id}' is empty; every new item needs an id, nothing was added.")
    there = ids.is_in(side.ids.implode()) | ids.is_duplicated()
    if there.any():
        raise DataError(f"the item '{ids[int(there.arg_max() or 0)]}' is in the catalogue already, or comes twice.")
    columns = []
    for one in schema.fields:
        if one.name in table.columns:
            columns.append(_finite(as_field(table[one.name], one, origin).alias(one.name), origin))
        else:
            warnings.warn(f"the new items have no column '{one.name}'; it counts as missing.", stacklevel=3)
            columns.append(pl.Series(one.name, [None], dtype=side.fields[one.name].dtype).new_from_index(0, len(ids)))
    fields = pl.concat([side.fields, pl.DataFrame(columns).cast(side.fields.schema)]) if columns else side.fields
    titles = None if side.titles is None else pl.concat([side.titles, _titles(table, schema.title, len(ids))])
    grown = Side(pl.concat([side.ids, ids.alias(side.ids.name)]), side.id_type, fields, titles, side.n_listed)
    data = replace(fitted.data, items=grown)
    encoder = replace(fitted.encoder, item_ids=grown.ids)
    encoded = replace(fitted.encoded, item=encoder.encode_part("item", grown.ids, grown.fields, len(grown)))
    fitted.stock.grow(ids.to_list())
    split = replace(fitted.split, data_hash=data.content_hash)
    return replace(
        fitted,
        data=data,
        split=split,
        encoder=encoder,
        encoded=encoded,
        scores=fitted.scores.over(encoded),
        extra_items=(*fitted.extra_items, *range(len(side), len(grown))),
    )


def _finite(values: pl.Series, origin: Origin) -> pl.Series:
    endless = values.is_infinite().fill_null(False) if values.dtype.is_float() else None
    if endless is not None and endless.any():
        where = origin.at(int(endless.arg_max() or 0))
        raise DataError(
            f"{where}: the column '{values.name}' is infinite; give a finite number, or none where it is not known."
        )
    return values


def _titles(table: pl.DataFrame, name: str | None, n: int) -> pl.Series:
    if name is None or name not in table.columns:
        return pl.Series("title", [None], dtype=pl.String).new_from_index(0, n)
    return as_text(table[name], Origin("the new items"))


def without_user(fitted: FittedRun, user: Any) -> FittedRun:
    """The run without any trace of a user: id, attributes, history and the row that learned from it."""
    if fitted.instances is not None:
        raise OptionError("a run of the task 'implicit' draws its instances from all users again; train it anew without her.")
    number = int(fitted.encoder.user_numbers([user])[0])
    if number < 0:
        raise DataError(f"the user '{user}' is unknown already.")
    kept = fitted.data.user_numbers != number
    data = _without(fitted.data, number, kept)
    place = np.cumsum(kept) - 1
    old = fitted.split
    train, validation, test, unused = (place[rows[kept[rows]]] for rows in (old.train, old.validation, old.test, old.unused))
    split = replace(
        old,
        train=train,
        validation=validation,
        test=test,
        unused=unused,
        validation_groups=None if old.validation_groups is None else old.validation_groups[kept[old.validation]],
        test_groups=None if old.test_groups is None else old.test_groups[kept[old.test]],
        data_hash=data.content_hash,
    )
    encoder, row = _without_id(fitted.encoder, number)
    weights = _without_row(fitted, row, number)
    encoded = encoder.encode(data)
    scores = fitted.scores
    if isinstance(scores, Scorer):
        scores = scores.with_weights(weights).over(encoded)
    elif isinstance(scores, ClosedFormModel):
        learned = learned_rows(split, fitted.regime)
        scores.fit(Positives(data.user_numbers[learned], data.item_numbers[learned], len(data.users), len(data.items)))
        weights = scores.weights()
    elif isinstance(scores, Mamo):
        scores.read(encoded, rated(data, with_labels(data, learned_rows(split, fitted.regime))))
    # What only she had can still be recommended to others.
    lost = np.setdiff1d(fitted.data.seen_items, data.seen_items)
    return replace(
        fitted,
        data=data,
        split=split,
        encoder=encoder,
        encoded=encoded,
        weights=weights,
        scores=scores,
        extra_items=(*fitted.extra_items, *(int(one) for one in lost)),
    )


def _without(data: Dataset, number: int, kept: Any) -> Dataset:
    others = np.arange(len(data.users)) != number
    side = data.users
    titles = None if side.titles is None else side.titles.filter(others)
    fields = side.fields.filter(others) if side.fields.width else side.fields
    users = Side(side.ids.filter(others), side.id_type, fields, titles, side.n_listed - (number < side.n_listed))
    interactions = data.interactions.filter(kept)
    numbers = interactions["user"].to_numpy()
    moved = pl.Series("user", (numbers - (numbers > number)).astype(np.int32))
    context = data.context.filter(kept) if data.context.width else data.context
    return replace(data, interactions=interactions.with_columns(moved), context=context, users=users)


def _without_id(encoder: Encoder, number: int) -> tuple[Encoder, int | None]:
    """Her text leaves the vocabulary; the row stays, so that no other row moves."""
    at = next(at for at, one in enumerate(encoder.fields) if one.part == "user" and one.kind == "id")
    text = encoder.user_ids[number]
    place = encoder.values[at].index_of(text)
    ids = encoder.user_ids.filter(np.arange(len(encoder.user_ids)) != number)
    if place is None:
        return replace(encoder, user_ids=ids), None
    gone = [name for name in encoder.values[at].to_list() if name.startswith("(forgotten ")]
    renamed = encoder.values[at].scatter(place, f"(forgotten {len(gone) + 1})")
    values = tuple(renamed if index == at else one for index, one in enumerate(encoder.values))
    return replace(encoder, user_ids=ids, values=values), encoder.fields[at].offset + 2 + int(place)


def _without_row(fitted: FittedRun, row: int | None, number: int) -> dict[str, Any]:
    weights = {name: one.clone() for name, one in fitted.weights.items()}
    if row is None or "table" not in weights:
        return weights
    first = next(one for one in fitted.encoder.fields if one.part == "user" and one.kind == "id")
    weights["table"][row] = weights["table"][first.unknown_row]
    if "dense.edges" in weights:  # a graph knows whom she chose
        node = row - first.offset
        weights["dense.edges"] = weights["dense.edges"][:, weights["dense.edges"][0] != node].contiguous()
    return weights
