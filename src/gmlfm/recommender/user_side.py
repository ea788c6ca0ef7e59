"""The user side of a question: users by number, or newcomers by attributes and history, with the context of the occasion."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from gmlfm.arguments import mapping, shown
from gmlfm.data.attributes import AttributeTable
from gmlfm.data.columns import Origin, as_field
from gmlfm.data.histories import History
from gmlfm.data.schema import Field
from gmlfm.errors import GmlfmError, OptionError, did_you_mean
from gmlfm.fitting import FittedRun
from gmlfm.models.base import Ints, UserSide


def known_users(
    run: FittedRun, numbers: npt.NDArray[np.int64], context: Mapping[str, Any] | None, history: History | None = None
) -> UserSide:
    """Users by number, -1 for one whom the data do not have. history: what they did; without it, all that the data have."""
    if history is None and run.model.reads_history:
        history = run.histories.complete(numbers)
    numbers32 = numbers.astype(np.int32)
    if len(run.encoded.user) == 0:  # everybody was forgotten
        unknown = run.unknown_user
        ids, x = np.repeat(unknown.ids, len(numbers), 0), np.repeat(unknown.values, len(numbers), 0)
        return UserSide(numbers32, _with_context(run, AttributeTable(ids, x), context), history)
    ids, x = run.encoded.user.ids[numbers], run.encoded.user.values[numbers]
    for row in np.flatnonzero(numbers < 0):
        unknown = run.unknown_user
        width = unknown.ids.shape[1]
        ids[row], x[row] = 0, 0.0
        ids[row, :width], x[row, :width] = unknown.ids[0], unknown.values[0]
    return UserSide(numbers32, _with_context(run, AttributeTable(ids, x), context), history)


def newcomer(
    run: FittedRun, attributes: Mapping[str, Any], history: Ints | None, context: Mapping[str, Any] | None
) -> UserSide:
    """A user that training never met."""
    attributes = mapping(attributes, "attributes", "{'city': 'Osaka'}")
    table = _typed_row(run.data.schema.fields_of("user"), attributes, "user")
    encoded = run.encoder.encode_part("user", None, table, 1)
    _warn_of_unknown(run, encoded, attributes)
    given = () if history is None else history
    return UserSide(np.full(1, -1, np.int32), _with_context(run, encoded, context), History.of([given]))


def _warn_of_unknown(run: FittedRun, encoded: AttributeTable, given: Mapping[str, Any]) -> None:
    """A value that training never met counts as unknown, which its giver should know."""
    for part, name, value in run.encoder.attribute_names(encoded.ids[0][encoded.values[0] != 0]).rows():
        if value == "(unknown)" and name in given:
            message = f"{part}.{name} = {given[name]!r} was never met in training; it counts as unknown."
            warnings.warn(message, stacklevel=5)


def _with_context(run: FittedRun, users: AttributeTable, context: Mapping[str, Any] | None) -> AttributeTable:
    declared = run.data.schema.interactions.context
    context = None if context is None else mapping(context, "context", "{'channel': 'app'}")
    if not declared:
        if context:
            raise OptionError(f"the data have no context, but {', '.join(context)} was given.")
        return users
    occasion = run.encoder.encode_part("context", None, _typed_row(declared, context or {}, "context"), 1)
    _warn_of_unknown(run, occasion, context or {})
    ids = np.concatenate([users.ids, np.repeat(occasion.ids, len(users), 0)], axis=1)
    return AttributeTable(ids, np.concatenate([users.values, np.repeat(occasion.values, len(users), 0)], axis=1))


def _typed_row(declared: Sequence[Field], given: Mapping[str, Any], where: str) -> pl.DataFrame:
    names = [field.name for field in declared]
    for name in given:
        if name not in names:
            raise OptionError(f"the data have no {where} field '{name}'{did_you_mean(name, names)}")
    origin = Origin("the attributes given")
    columns = []
    for field in declared:
        if field.name not in given:
            continue
        try:
            columns.append(as_field(pl.Series(field.name, [given[field.name]], strict=False), field, origin))
        except (GmlfmError, UnicodeError, OverflowError, TypeError, pl.exceptions.PolarsError) as error:
            raise OptionError(f"the {where} field '{field.name}' is a {field.kind}; got {shown(given[field.name])}.") from error
    return pl.DataFrame(columns)
