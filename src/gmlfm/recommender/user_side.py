"""Who asks: users by number, newcomers by attributes, with the context of the occasion."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from gmlfm.data.attributes import AttributeTable
from gmlfm.data.columns import Origin, as_field
from gmlfm.data.encoding import Encoded
from gmlfm.data.schema import Field
from gmlfm.errors import GmlfmError, OptionError, did_you_mean
from gmlfm.fitting import FittedRun
from gmlfm.training.sampling.groups import user_side_of


def known_user_side(fitted: FittedRun, numbers: npt.NDArray[np.int64], context: Mapping[str, Any] | None) -> AttributeTable:
    """Users by number; -1 is somebody of whom nothing is known."""
    stranger = fitted.encoder.encode_part("user", None, pl.DataFrame(), 1)
    if len(fitted.encoded.user) == 0:  # everybody was forgotten
        ids, x = np.repeat(stranger.ids, len(numbers), 0), np.repeat(stranger.values, len(numbers), 0)
        return with_context(fitted, AttributeTable(ids, x), context)
    ids, x = fitted.encoded.user.ids[numbers], fitted.encoded.user.values[numbers]
    for at in np.flatnonzero(numbers < 0):
        ids[at], x[at] = 0, 0.0
        ids[at, : stranger.ids.shape[1]], x[at, : stranger.ids.shape[1]] = stranger.ids[0], stranger.values[0]
    return with_context(fitted, AttributeTable(ids, x), context)


def newcomer_side(fitted: FittedRun, attributes: Mapping[str, Any]) -> AttributeTable:
    if not isinstance(attributes, Mapping):
        raise OptionError(f"attributes is a {type(attributes).__name__}; expected a mapping such as {{'city': 'Osaka'}}.")
    table = _typed_row(fitted.data.schema.fields_of("user"), attributes, "user")
    encoded = fitted.encoder.encode_part("user", None, table, 1)
    warn_of_unknown(fitted, encoded, attributes, 4)
    return with_context(fitted, encoded, None)


def warn_of_unknown(fitted: FittedRun, encoded: AttributeTable, given: Mapping[str, Any], level: int) -> None:
    """A value that training never met counts as unknown, which its giver should know."""
    for part, name, value in fitted.encoder.attribute_names(encoded.ids[0][encoded.values[0] != 0]).rows():
        if value == "(unknown)" and name in given:
            told = f"{part}.{name} = {given[name]!r} was never met in training; it counts as unknown."
            warnings.warn(told, stacklevel=level)


def with_context(fitted: FittedRun, user_side: AttributeTable, context: Mapping[str, Any] | None) -> AttributeTable:
    declared = fitted.data.schema.interactions.context
    if not declared:
        if context:
            raise OptionError(f"the data have no context, but {', '.join(context)} was given.")
        return user_side
    one = fitted.encoder.encode_part("context", None, _typed_row(declared, context or {}, "context"), 1)
    repeated = AttributeTable(np.repeat(one.ids, len(user_side), 0), np.repeat(one.values, len(user_side), 0))
    return user_side_of(Encoded(user_side, repeated, user_side), np.arange(len(user_side)), np.arange(len(user_side)))


def _typed_row(declared: Sequence[Field], given: Mapping[str, Any], where: str) -> pl.DataFrame:
    names = [one.name for one in declared]
    for name in given:
        if name not in names:
            raise OptionError(f"the data have no {where} field '{name}'{did_you_mean(name, names)}")
    origin = Origin("the attributes given")
    columns = []
    for one in declared:
        if one.name not in given:
            continue
        try:
            columns.append(as_field(pl.Series(one.name, [given[one.name]], strict=False), one, origin))
        except GmlfmError as error:
            raise OptionError(f"the {where} field '{one.name}' is a {one.kind}; got {given[one.name]!r}.") from error
    return pl.DataFrame(columns)
