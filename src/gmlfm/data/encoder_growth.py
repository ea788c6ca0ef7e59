"""An Encoder with more rows: for ids and values that it has no row for yet."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import polars as pl

from gmlfm.data.attributes import FIRST_VALUE, PARTS, Learned, count_values, frequent_ids, lay_out, most_frequent_first, no_text
from gmlfm.data.dataset import Dataset, Rows
from gmlfm.data.encoding import Encoder

Longs = npt.NDArray[np.int64]


@dataclass(frozen=True)
class GrownEncoder:
    """origins: (n_rows,) for each row the row of the encoder before that it goes on from: its own, or for a new one the unknown
    row of its field, in each role that of the role. is_new: (n_rows,)."""

    encoder: Encoder
    origins: Longs
    is_new: npt.NDArray[np.bool_]

    @property
    def n_new(self) -> int:
        return int(self.is_new.sum())


def grown_encoder(encoder: Encoder, data: Dataset, rows: Rows, *, user_ids: bool = True) -> GrownEncoder:
    """The encoder with rows for what `data`, which has all that the encoder was fitted on and more, has beside it.

    rows: the interactions that are learned from, old and new, by which ids and values are counted as in Encoder.fit; what
    stands in the encoder keeps its row however rare it is, and numbers keep their scale. user_ids: whether users have rows.
    Fields lie in blocks one after another, so old rows move: `origins` says where from.
    """
    learned: list[Learned] = []
    trained = rows[data.interactions["positive"].to_numpy()[rows]]
    base = encoder.with_roles(())
    for code, texts in zip(base.fields, base.values, strict=True):
        assert code.part in PARTS
        more = no_text()
        if code.kind == "id":
            side, numbers = (data.users, data.user_numbers) if code.part == "user" else (data.items, data.item_numbers)
            if code.part == "item" or user_ids:
                more = frequent_ids(side.ids, numbers[trained], data.schema.min_count_of(code.part, code.part))
        elif code.kind != "number":
            column = data.columns_of(code.part)[code.name]
            counts = count_values(column[rows] if code.part == "context" else column)
            minimum = data.schema.min_count_of(code.part, code.name)
            more = most_frequent_first(counts.filter(pl.col("count") >= minimum))
        all_texts = pl.concat([texts.alias("value"), more.filter(~more.is_in(texts.implode())).alias("value")])
        n_values = code.n_values if code.kind == "number" else len(all_texts)
        learned.append(Learned(code.part, code.name, code.kind, n_values, all_texts, code.weighting, code.centre, code.scale))
    larger = replace(
        encoder,
        fields=lay_out(learned),
        values=tuple(field.texts for field in learned),
        user_ids=data.users.ids,
        item_ids=data.items.ids,
        user_id_type=data.users.id_type,
        item_id_type=data.items.id_type,
        roles=(),
    ).with_roles(encoder.roles)
    origins, is_new = np.zeros(larger.n_rows, np.int64), np.zeros(larger.n_rows, bool)
    for old, new in zip(encoder.fields, larger.fields, strict=True):
        n_old = FIRST_VALUE + old.n_values
        origins[new.offset : new.offset + n_old] = np.arange(old.offset, old.end)
        origins[new.offset + n_old : new.end] = old.unknown_row
        is_new[new.offset + n_old : new.end] = True
    return GrownEncoder(larger, origins, is_new)
