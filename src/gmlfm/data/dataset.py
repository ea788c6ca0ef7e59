"""The Dataset: a caller's tables, checked, numbered and frozen. It holds no training decision."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from gmlfm.arguments import mapping
from gmlfm.data.availability import Availability, look_single_unit, tell_untimed
from gmlfm.data.columns import IdType, Origin
from gmlfm.data.event_order import event_order, places_in_file
from gmlfm.data.events import no_history
from gmlfm.data.interop import as_frame
from gmlfm.data.schema import Schema
from gmlfm.data.times import in_order
from gmlfm.errors import DataError, OptionError

Task = Literal["topn", "rating", "implicit"]
Rows = npt.NDArray[np.int64]
_LOG = logging.getLogger("gmlfm")


@dataclass(frozen=True)
class Side:
    """All users, or the whole catalogue of items: entity number -> id, fields, title.

    The `n_listed` of the caller's table come first, then those that only interactions name (their fields are missing).
    `listed`, of items alone: the time from which each could be had, on the scale of the interactions' times.
    """

    ids: pl.Series
    id_type: IdType
    fields: pl.DataFrame
    titles: pl.Series | None
    n_listed: int
    listed: pl.Series | None = None

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, eq=False)
class Dataset:
    """Interactions in file order, with users and items as entity numbers into `users` and `items`.

    `interactions` has the columns user, item (int32), positive (Boolean) and, where declared, time, label, weight, and
    is_history (Boolean) where rows of some target kinds do not count as history; `context` has the declared context fields,
    row by row beside it.

    `history_rows`, in file order, are never targets: events of other kinds, and positive rows that were merged into the latest
    of their pair (is_had). They have the columns user, item (int32), before (int64: how many of the interactions stand before
    the row in the file), is_had (Boolean) and, where declared, time. Without any rows the frame may lack time.
    """

    schema: Schema
    interactions: pl.DataFrame
    context: pl.DataFrame
    users: Side
    items: Side
    warnings: tuple[str, ...] = ()
    history_rows: pl.DataFrame = field(default_factory=no_history)

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
        """Build from polars, pandas or Arrow tables. Without a schema one is inferred and logged as a warning.

        strict: refuse interactions that name a user or item without a row in its table, instead of counting them.
        """
        tables = {"interactions": as_frame(interactions, "interactions")}
        for name, table in (("users", users), ("items", items)):
            if table is not None:
                tables[name] = as_frame(table, name)
        if schema is None:
            from gmlfm.data.guessing import guess_schema
            from gmlfm.data.schema_toml import to_toml

            guess = guess_schema(tables, known_roles=True)
            schema = guess.schema
            _LOG.warning("# gmlfm inferred this schema; pass schema= to change it\n%s", to_toml(schema, guess.reasons))
        elif not isinstance(schema, Schema):
            schema = Schema.from_dict(mapping(schema, "schema", "{'interactions': {'user': 'u', 'item': 'i'}}"))
        from gmlfm.data.building import Builder

        return Builder(tables, schema, strict, dict(origins or {})).build()

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
        """Items that occur in the interactions: what rankings are over, unless candidates="catalogue"."""
        return np.unique(self.item_numbers)

    @cached_property
    def seen_users(self) -> npt.NDArray[np.int32]:
        return np.unique(self.user_numbers)

    @property
    def sells_once(self) -> bool:
        """Whether items are gone with their first sale: as the schema says, else where nine in ten sold items have one row."""
        declared = "auto" if self.schema.items is None else self.schema.items.sells_once
        return self._looks_single_unit if declared == "auto" else bool(declared)

    @cached_property
    def _looks_single_unit(self) -> bool:
        counts = np.bincount(self.item_numbers[self.positive_rows])
        return look_single_unit(int((counts == 1).sum()), int((counts > 0).sum()))

    @cached_property
    def single_unit_items(self) -> npt.NDArray[np.bool_]:
        """By item number: does it sell once? Where items do, those with more than one row are exempt one by one."""
        counts = np.bincount(self.item_numbers, minlength=len(self.items))
        return counts <= 1 if self.sells_once else np.zeros(len(self.items), bool)

    @cached_property
    def availability(self) -> Availability | None:
        """From when until when each item can be had; None where items do not sell once or no listing times are declared."""
        listed = self.items.listed
        if listed is None or not self.sells_once or "time" not in self.interactions.columns:
            return None
        if not self.has_all_times:
            tell_untimed(self.interactions["time"].null_count())
            return None
        return Availability.of(self.interactions["time"], self.item_numbers, listed, self.single_unit_items)

    @property
    def has_all_times(self) -> bool:
        return "time" in self.interactions.columns and self.interactions["time"].null_count() == 0

    def columns_of(self, part: str) -> pl.DataFrame:
        """A part's fields: by entity number, or by interaction row for the context."""
        return {"user": self.users.fields, "context": self.context, "item": self.items.fields}[part]

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
        rows = np.flatnonzero(self.interactions["label"].is_not_null().to_numpy()).astype(np.int64)
        if len(rows) == 0:
            raise DataError(f"no row of dataset '{self.name}' has a label, which the task 'rating' learns from.")
        return rows

    def order_in_time(self, rows: Rows) -> Rows:
        """The rows in the order of time, then of position in the file. A row without a time counts as earliest."""
        if "time" not in self.interactions.columns:
            return np.sort(rows)
        rows = np.sort(rows)
        return rows[np.argsort(in_order(self.interactions["time"])[rows], kind="stable")]

    @cached_property
    def places_in_time(self) -> Rows:
        """Of each row: how many come before it in the order of time."""
        places = np.empty(len(self.interactions), np.int64)
        places[self.order_in_time(np.arange(len(self.interactions)))] = np.arange(len(self.interactions))
        return places

    @cached_property
    def counts_as_history(self) -> npt.NDArray[np.bool_]:
        """(n_interactions,): whether the row is history of the user's later rows: a positive of a kind in history_events."""
        counts = self.interactions["positive"]
        return (counts & self.interactions["is_history"] if "is_history" in self.interactions.columns else counts).to_numpy()

    @cached_property
    def history_order(self) -> Rows:
        """(n_interactions,): a row is history of rows of its user whose number here or in history_rows_order is greater."""
        return self._history_orders[0]

    @cached_property
    def history_rows_order(self) -> Rows:
        """(history_rows.height,): on the scale of history_order."""
        return self._history_orders[1]

    @cached_property
    def _history_orders(self) -> tuple[Rows, Rows]:
        """As [interactions] ties says. Without times: all equal under strict, else the place in the file."""
        others, n = self.history_rows, self.n_interactions
        places = np.concatenate(places_in_file(n, others["before"].to_numpy()))
        users = np.concatenate([self.user_numbers, others["user"].to_numpy()])
        times = None
        if "time" in self.interactions.columns:
            times = self.interactions["time"]
            times = pl.concat([times, others["time"]]) if others.height else times
        order = event_order(self.schema.interactions.ties, users, self.users.ids, times, places)
        return order[:n], order[n:]

    @cached_property
    def content_hash(self) -> str:
        """Names this version of the content: same tables and schema, same hash, on any machine."""
        digest = hashlib.sha256()
        for side in (self.users, self.items):
            digest.update(f"{side.id_type} {len(side)}".encode())
            _hash_column(digest, side.ids)
            for column in side.fields.iter_columns():
                _hash_column(digest, column)
            if side.titles is not None:
                _hash_column(digest, side.titles)
            if side.listed is not None:
                _hash_column(digest, side.listed)
        frames = [self.interactions, self.context, *([self.history_rows] if self.history_rows.height else [])]
        for frame in frames:
            for column in frame.iter_columns():
                _hash_column(digest, column)
        for part, declared in self.schema.all_fields():
            digest.update(f"{part} {declared}".encode())
        digest.update(repr(sorted(self.schema.min_count.items())).encode())
        if self.schema.items is not None and self.schema.items.sells_once != "auto":
            digest.update(f"sells_once {self.schema.items.sells_once}".encode())
        if self.schema.interactions.ties != "strict":
            digest.update(f"ties {self.schema.interactions.ties}".encode())
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
