"""A Dataset and an Encoder without some users, and without the values that only they had."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import polars as pl

from gmlfm.data.attributes import FIRST_VALUE, FieldCode
from gmlfm.data.dataset import Dataset, Side
from gmlfm.data.encoding import Encoder

# No table that people keep has such a text, so no value is ever taken for a forgotten one.
_FORGOTTEN = "\0forgotten {}"


def data_without(data: Dataset, numbers: Sequence[int]) -> tuple[Dataset, npt.NDArray[np.bool_]]:
    """The data without these users, and which of their rows are kept. Notes that name one of them are left out."""
    is_gone = np.zeros(len(data.users), bool)
    is_gone[list(numbers)] = True
    ids, side = data.users.ids.filter(is_gone).to_list(), data.users
    is_kept = ~is_gone[data.user_numbers]
    users = Side(
        side.ids.filter(~is_gone),
        side.id_type,
        side.fields.filter(~is_gone) if side.fields.width else side.fields,
        None if side.titles is None else side.titles.filter(~is_gone),
        side.n_listed - int(is_gone[: side.n_listed].sum()),
    )
    new_number = (np.cumsum(~is_gone) - 1).astype(np.int32)
    interactions = data.interactions.filter(is_kept)
    interactions = interactions.with_columns(pl.Series("user", new_number[interactions["user"].to_numpy()]))
    context = data.context.filter(is_kept) if data.context.width else data.context
    history = data.history_rows.filter(~is_gone[data.history_rows["user"].to_numpy()])
    n_before = np.concatenate([[0], np.cumsum(is_kept)])
    history = history.with_columns(
        pl.Series("user", new_number[history["user"].to_numpy()]),
        pl.Series("before", n_before[history["before"].to_numpy()], dtype=pl.Int64),
    )
    warnings = tuple(warning for warning in data.warnings if not any(names(warning, user) for user in ids))
    changed = replace(data, interactions=interactions, context=context, users=users, warnings=warnings, history_rows=history)
    return changed, is_kept


def names(text: str, user: str) -> bool:
    """Whether a text names a user: the id as a word of its own."""
    return re.search(rf"(?<!\w){re.escape(user)}(?!\w)", text) is not None


def encoder_without(encoder: Encoder, number: int, before: Dataset, after: Dataset) -> tuple[Encoder, tuple[int, ...]]:
    """The encoder without a user's id and the values that no other row has, and the rows of the table that were theirs, the
    id's first. Texts leave the vocabulary, rows stay, so that no other row moves."""
    values, rows = list(encoder.values), []
    for index, field in enumerate(encoder.fields):
        for text in _own_texts(encoder, field, number, before, after):
            place = values[index].index_of(text)
            if place is not None:
                n_forgotten = sum(known.startswith(_FORGOTTEN[:1]) for known in values[index].to_list())
                # scatter writes in place, and the encoder before keeps its texts
                values[index] = values[index].clone().scatter(place, _FORGOTTEN.format(n_forgotten + 1))
                rows.append(field.offset + FIRST_VALUE + int(place))
    ids = encoder.user_ids.filter(np.arange(len(encoder.user_ids)) != number)
    return replace(encoder, user_ids=ids, values=tuple(values)), tuple(rows)


def _own_texts(encoder: Encoder, field: FieldCode, number: int, before: Dataset, after: Dataset) -> list[str]:
    """What this user alone had in a field of the user side or of the context."""
    if field.part not in ("user", "context") or field.kind == "number":
        return []
    if field.kind == "id":
        return [encoder.user_ids[number]]
    columns = [data.columns_of(field.part)[field.name] for data in (before, after)]
    is_theirs = before.user_numbers == number if field.part == "context" else np.arange(len(before.users)) == number
    theirs, others = _members(columns[0].filter(is_theirs)), _members(columns[1])
    return theirs.filter(~theirs.is_in(others.implode())).to_list()


def _members(values: pl.Series) -> pl.Series:
    flat = values.drop_nulls().explode(empty_as_null=False) if isinstance(values.dtype, pl.List) else values.drop_nulls()
    return flat.unique(maintain_order=True)
