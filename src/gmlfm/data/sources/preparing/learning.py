"""Learns vocabularies, scales and id rows, counting bucket by bucket."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import polars as pl

from gmlfm.data.attributes import Learned, Part
from gmlfm.data.counting import FieldValues, RowCounts
from gmlfm.data.encoding import Encoder
from gmlfm.data.sources.preparing.plan import Plan, read_work
from gmlfm.data.sources.preparing.splitting import Splitter, n_shards, read_rows
from gmlfm.data.splits import TRAIN


def learn(plan: Plan, splitter: Splitter, n_users: int, n_items: int) -> tuple[Encoder, Mapping[str, npt.NDArray[np.int32]]]:
    """Vocabularies over the numbered buckets; id rows by training positives, the most frequent first."""
    counts = RowCounts(n_users, n_items, plan.schema)
    for number in range(n_shards(plan)):
        plan.progress("counting", number, plan.n_buckets)
        counts.add(splitter.with_parts(read_rows(plan, number), number), (TRAIN,))
    vocabulary = counts.vocabulary([*_side_fields(plan, "user"), *_side_fields(plan, "item")])
    no_ids = pl.Series("id", [], dtype=pl.String)
    return Encoder(vocabulary.codes, vocabulary.texts, no_ids, no_ids, "text", "text"), vocabulary.id_rows


def _side_fields(plan: Plan, part: Part) -> list[Learned]:
    values = {field.name: FieldValues(field) for field in plan.schema.fields_of(part)}
    for path in sorted((plan.work / f"numbered-{part}s").glob("[0-9]*/side.parquet")) if values else []:
        frame = read_work(path)
        for name, values_of_field in values.items():
            if f"field {name}" in frame.columns:
                values_of_field.add(frame[f"field {name}"])
    return [counted.learned(part, plan.schema.min_count_of(part, name)) for name, counted in values.items()]
