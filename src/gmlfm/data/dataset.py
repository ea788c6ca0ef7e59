"""The Dataset: a caller's tables, checked, numbered and frozen. It holds no training decision."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from gmlfm.data.columns import IdType, Origin, as_field, as_ids, as_number, as_text, column
from gmlfm.data.expressions import Columns, holds
from gmlfm.data.frames import as_frame
from gmlfm.data.schema import InteractionsSchema, Schema, SideSchema
from gmlfm.data.times import as_times
from gmlfm.errors import DataError, OptionError, SchemaError

Task = Literal["topn", "rating", "implicit"]
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Side:
    """All users, or the whole catalogue of items: entity number -> id, fields, title.

    The `n_listed` of the caller's table come first, then those that only interactions name (their fields are missing).
    """

    ids: pl.Series
    id_type: IdType
    fields: pl.DataFrame
    titles: pl.Series | None
    n_listed: int

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, eq=False)
class Dataset:
    """Interactions in file order, with users and items as entity numbers into `users` and `items`.

    `interactions` has the columns user, item (int32), positive (Boolean) and, where declared, time, label, weight;
    `context` has the declared context fields, row by row beside it.
    """

    schema: Schema
    interactions: pl.DataFrame
    context: pl.DataFrame
    users: Side
    items: Side
    warnings: tuple[str, ...] = ()

    @classmethod
    def from_tables(
        cls,
        interactions: Any,
        users: Any = None,
        items: Any = None,
        schema: Schema | Mapping[str, Any] | None = None,
        *,
        strict: bool = False,
        origins: Mapping[str, Origin] | None = None,
    ) -> Dataset:
        """Build from polars, pandas or Arrow tables. Without a schema one is inferred and shown on stderr.

        strict: refuse interactions that name a user or item without a row in its table, instead of counting them.
        """
        frames = {"interactions": as_frame(interactions, "interactions")}
        for name, table in (("users", users), ("items", items)):
            if table is not None:
                frames[name] = as_frame(table, name)
        if schema is None:
            from gmlfm.data.guessing import guess_schema
            from gmlfm.data.schema_toml import to_toml

            guess = guess_schema(frames, known_roles=True)
            schema = guess.schema
            print(f"# gmlfm inferred this schema; pass schema= to change it\n{to_toml(schema, guess.reasons)}", file=sys.stderr)
        elif not isinstance(schema, Schema):
            schema = Schema.from_dict(schema)
        return _Builder(frames, schema, strict, dict(origins or {})).build()

    @property
    def name(self) -> str:
        return self.schema.name

    @property
    def n_interactions(self) -> int:
        return self.interactions.height

    @cached_property
    def user_numbers(self) -> npt.NDArray[np.int32]:
        return self.interactions["user"].to_numpy()

    @cached_property
    def item_numbers(self) -> npt.NDArray[np.int32]:
        return self.interactions["item"].to_numpy()

    @cached_property
    def positive_rows(self) -> Rows:
        return np.flatnonzero(self.interactions["positive"].to_numpy()).astype(np.int64)

    @cached_property
    def seen_items(self) -> npt.NDArray[np.int32]:
        """Items that occur in the interactions: what rankings are over unless the whole catalogue is asked for."""
        return np.unique(self.item_numbers)

    @cached_property
    def seen_users(self) -> npt.NDArray[np.int32]:
        return np.unique(self.user_numbers)

    def rows_for(self, task: Task) -> Rows:
        """The interactions that a task learns from: positives, or rows with a label."""
        if task in ("topn", "implicit"):
            return self.positive_rows
        if task != "rating":
            raise OptionError(f"task is {task!r}; expected topn, rating or implicit.")
        if "label" not in self.interactions.columns:
            raise DataError(
                f"dataset '{self.name}' declares no label, which the task 'rating' predicts; set [interactions] label."
            )
        return np.flatnonzero(self.interactions["label"].is_not_null().to_numpy()).astype(np.int64)

    def order_in_time(self, rows: Rows) -> Rows:
        """The rows in the order of time, then of position in the file. A row without a time counts as earliest."""
        if "time" not in self.interactions.columns:
            return np.sort(rows)
        rows = np.sort(rows)
        times = self.interactions["time"]
        # The type's own minimum keeps missing times in front without turning int64 microseconds into floats.
        lowest = -np.inf if times.dtype.is_float() else np.iinfo(np.int64).min
        return rows[np.argsort(times.fill_null(lowest).to_numpy()[rows], kind="stable")]

    @cached_property
    def content_hash(self) -> str:
        """Names this version of the content: same tables and schema, same hash, on any machine."""
        digest = hashlib.sha256()
        for side in (self.users, self.items):
            digest.update(f"{side.id_type} {len(side)}".encode())
            _hash_column(digest, side.ids)
            for frame_column in side.fields.iter_columns():
                _hash_column(digest, frame_column)
            if side.titles is not None:
                _hash_column(digest, side.titles)
        for frame in (self.interactions, self.context):
            for frame_column in frame.iter_columns():
                _hash_column(digest, frame_column)
        for where, one in self.schema.all_fields():
            digest.update(f"{where} {one}".encode())
        digest.update(repr(sorted(self.schema.min_count.items())).encode())
        return digest.hexdigest()[:16]

    def __repr__(self) -> str:
        return (
            f"Dataset('{self.name}', {self.n_interactions:,} interactions, {len(self.seen_users):,} users, "
            f"{len(self.seen_items):,} items, catalogue {len(self.items):,}, {self.content_hash})"
        )


def _hash_column(digest: Any, values: pl.Series) -> None:
    digest.update(f"|{values.name}:{values.dtype}:{len(values)}|".encode())
    digest.update(np.packbits(values.is_null().to_numpy()).tobytes())
    if isinstance(values.dtype, pl.List):
        digest.update(values.list.len().fill_null(0).to_numpy().astype("<u4").tobytes())
        _hash_column(digest, values.drop_nulls().explode(empty_as_null=False).alias("members"))
    elif values.dtype == pl.String:
        text = values.fill_null("")
        digest.update(text.str.len_bytes().to_numpy().astype("<u4").tobytes())
        digest.update(str(text.str.join("").item() if len(text) else "").encode())
    elif values.dtype == pl.Boolean:
        digest.update(np.packbits(values.fill_null(False).to_numpy()).tobytes())
    else:
        kind = "<f8" if values.dtype.is_float() else "<i8"
        digest.update(values.fill_null(0).to_numpy().astype(kind).tobytes())


class _Builder:
    """One pass over the caller's tables; every check that a table can fail is here or in columns.py."""

    def __init__(self, frames: Mapping[str, pl.DataFrame], schema: Schema, strict: bool, origins: dict[str, Origin]) -> None:
        self._frames = frames
        self._schema = schema
        self._strict = strict
        self._origins = {name: origins.get(name, Origin(f"the {name} table")) for name in ("interactions", "users", "items")}
        self._warnings: list[str] = []

    def build(self) -> Dataset:
        for name, side in (("users", self._schema.users), ("items", self._schema.items)):
            if side is None and name in self._frames:
                raise SchemaError(f"a table of {name} was given, but the schema has no [{name}].")
            if side is not None and name not in self._frames:
                raise SchemaError(f"the schema has [{name}], but no table of {name} was given.")
        for name, frame in self._frames.items():
            if frame.height == 0:
                raise DataError(f"{self._origins[name].name} is empty; at least one row is needed.")
        spec = self._schema.interactions
        origin = self._origins["interactions"]
        table = self._frames["interactions"]
        user_ids, user_type = as_ids(column(table, spec.user, origin, "user"), origin)
        item_ids, item_type = as_ids(column(table, spec.item, origin, "item"), origin)
        usable = self._rows_with_ids(user_ids, item_ids)
        users, user_numbers = self._side("users", self._schema.users, user_ids, user_type, usable)
        items, item_numbers = self._side("items", self._schema.items, item_ids, item_type, usable)
        interactions = pl.DataFrame({"user": user_numbers, "item": item_numbers})
        interactions = interactions.with_columns(self._occasion(table, spec, origin)).filter(usable)
        context = pl.DataFrame(
            [
                as_field(column(table, one.name, origin, "context"), one, origin, spec.read.decimal).alias(one.name)
                for one in spec.context
            ]
        )
        context = context.filter(usable) if spec.context else context
        if spec.repeats == "merge":
            interactions, context = self._merge_repeats(interactions, context)
        return Dataset(self._schema, interactions, context, users, items, tuple(self._warnings))

    def _rows_with_ids(self, user_ids: pl.Series, item_ids: pl.Series) -> pl.Series:
        usable = user_ids.is_not_null() & item_ids.is_not_null()
        n_lost = int((~usable).sum())
        if n_lost:
            read = self._schema.interactions.read
            first = self._origins["interactions"].at(int((~usable).arg_max() or 0))
            what = f"{first}: {n_lost:,} row(s) of the interactions, this the first, have no user or no item"
            if n_lost > read.tolerate:
                raise DataError(f"{what}; mend them, or allow them with read = {{ tolerate = {n_lost} }}.")
            self._warnings.append(f"{what}; left out, as tolerate = {read.tolerate} allows.")
        if not usable.any():
            raise DataError(f"{self._origins['interactions'].name} has no row with both a user and an item.")
        return usable

    def _side(
        self, name: str, spec: SideSchema | None, met_ids: pl.Series, met_type: IdType, usable: pl.Series
    ) -> tuple[Side, pl.Series]:
        """The side's entities, and the interactions' ids as numbers of them."""
        met = met_ids.filter(usable)
        listed = pl.Series("id", [], dtype=pl.String)
        if spec is not None:
            table, origin = self._frames[name], self._origins[name]
            listed, listed_type = as_ids(column(table, spec.id, origin, f"[{name}] id"), origin)
            self._check_listed(listed, name, spec.id, origin)
            met_type = "integer" if met_type == listed_type == "integer" else "text"
        extra = met.unique(maintain_order=True)
        extra = extra.filter(~extra.is_in(listed.implode()))
        ids = pl.concat([listed.alias("id"), extra.alias("id")])
        if len(listed) and len(extra):
            self._count_unlisted(name, met_ids, extra)
        numbers = pl.DataFrame({"id": ids, "number": np.arange(len(ids), dtype=np.int32)})
        met_numbers = pl.DataFrame({"id": met_ids}).join(numbers, on="id", how="left", maintain_order="left")["number"]
        fields, titles = self._side_columns(name, spec, len(extra))
        return Side(ids, met_type, fields, titles, len(listed)), met_numbers

    def _check_listed(self, ids: pl.Series, name: str, id_column: str, origin: Origin) -> None:
        if ids.null_count():
            row = int(ids.is_null().arg_max() or 0)
            raise DataError(f"{origin.at(row)}: column '{id_column}' is missing; every row of {name} needs an id.")
        repeated = ids.is_duplicated()
        if repeated.any():
            first = int(repeated.arg_max() or 0)
            again = int((ids == ids[first]).arg_true()[1])
            raise DataError(
                f"{origin.at(again)}: column '{id_column}' holds {ids[first]!r} again (first at {origin.at(first)}; "
                f"{len(ids) - ids.n_unique():,} repeated ids in all); each of the {name} may have one row only."
            )

    def _count_unlisted(self, name: str, met: pl.Series, extra: pl.Series) -> None:
        n_rows = int(met.is_in(extra.implode()).sum())
        one = name[:-1]
        what = f"{len(extra):,} {name} ({n_rows:,} interactions) have no row in the {name} table, such as {extra[0]!r}"
        if self._strict:
            row = int((met == extra[0]).arg_max() or 0)
            raise DataError(f"{self._origins['interactions'].at(row)}: {what}; add them, or drop strict.")
        if len(extra) == met.drop_nulls().n_unique():
            what = f"not one {one} of the interactions is in the {name} table: are the ids written alike? {what}"
        self._warnings.append(f"{what}; kept, with missing attributes.")

    def _side_columns(self, name: str, spec: SideSchema | None, n_extra: int) -> tuple[pl.DataFrame, pl.Series | None]:
        if spec is None:
            return pl.DataFrame(), None
        table, origin = self._frames[name], self._origins[name]

        def extended(values: pl.Series, called: str) -> pl.Series:
            return values.alias(called).extend_constant(None, n_extra)

        fields = [
            extended(as_field(column(table, one.name, origin, f"[{name}] fields"), one, origin, spec.read.decimal), one.name)
            for one in spec.fields
        ]
        if spec.title is None:
            return pl.DataFrame(fields), None
        return pl.DataFrame(fields), extended(as_text(column(table, spec.title, origin, "title"), origin), "title")

    def _occasion(self, table: pl.DataFrame, spec: InteractionsSchema, origin: Origin) -> list[pl.Series]:
        """positive, and the optional columns time, label and weight."""
        decimal = spec.read.decimal
        result = []
        if spec.time is not None:
            times = as_times(column(table, spec.time, origin, "time"), origin, spec.time_format).alias("time")
            if times.null_count():
                self._warnings.append(f"{times.null_count():,} interactions have no time; they count as earliest.")
            result.append(times)
        if spec.label is not None:
            labels = as_number(column(table, spec.label, origin, "label"), origin, decimal).alias("label")
            if labels.is_infinite().any():
                row = int(labels.is_infinite().arg_max() or 0)
                raise DataError(f"{origin.at(row)}: column '{spec.label}' is infinite; a label must be finite.")
            if labels.null_count():
                self._warnings.append(f"{labels.null_count():,} interactions have no label; the task 'rating' leaves them out.")
            result.append(labels)
        if spec.weight is not None:
            result.append(self._weights(as_number(column(table, spec.weight, origin, "weight"), origin, decimal), origin))
        if spec.positive is None:
            positive = pl.Series("positive", [True]).new_from_index(0, table.height)
        else:
            condition = Columns(
                number=lambda name: as_number(column(table, name, origin, "positive"), origin, decimal),
                text=lambda name: as_text(column(table, name, origin, "positive"), origin),
            )
            positive = holds(spec.positive, condition).alias("positive")
            if not positive.any():
                raise DataError(
                    f'{origin.name}: no row fulfils positive = "{spec.positive}", so there is nothing to recommend.'
                )
        return [*result, positive]

    def _weights(self, weights: pl.Series, origin: Origin) -> pl.Series:
        wrong = (weights.is_null() | weights.is_infinite() | (weights <= 0)).fill_null(True)
        if wrong.any():
            row = int(wrong.arg_max() or 0)
            raise DataError(
                f"{origin.at(row)}: column '{weights.name}' holds the weight {weights[row]} ({int(wrong.sum()):,} such rows); "
                "a weight must be a finite number above 0."
            )
        return weights.alias("weight")

    def _merge_repeats(self, table: pl.DataFrame, context: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """One row for each user, item and context: the latest stays where it stood, weights add up."""
        marked = [values.alias(f"context {values.name}") for values in context.iter_columns()]
        keyed = table.with_columns(marked).with_row_index("position")
        keys = ["user", "item", *(values.name for values in marked)]
        if not marked:
            pairs = table["user"].cast(pl.Int64) * (int(table["item"].max()) + 1) + table["item"]  # type: ignore[arg-type]
            n_distinct = pairs.n_unique()
        else:
            n_distinct = keyed.select(pl.struct(keys).n_unique()).item()
        if n_distinct == table.height:
            return table, context
        order = ["time", "position"] if "time" in table.columns else ["position"]
        others = [name for name in keyed.columns if name not in (*keys, "weight")]
        combine = [pl.col(name).last() for name in others]
        if "weight" in table.columns:
            combine.append(pl.col("weight").sum())
        merged = keyed.sort(order, nulls_last=False).group_by(keys).agg(combine).sort("position")
        n_merged = table.height - merged.height
        self._warnings.append(
            f'{n_merged:,} repeated rows were merged into the latest of their pair (repeats = "keep" keeps them).'
        )
        kept = merged["position"].to_numpy()
        return merged.select(table.columns), context[kept] if marked else context
