"""Builds a Dataset in one pass over the caller's tables. Every check of a table is here or in columns.py."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import polars as pl

from gmlfm.data.columns import IdType, Origin, as_field, as_ids, as_number, as_text, column, finite
from gmlfm.data.dataset import Dataset, Side
from gmlfm.data.events import EventRoles, KindTally, event_kinds, history_alone, no_history
from gmlfm.data.row_filter import chosen_rows, left_out_note, nothing_used, rows_that_hold, used_rows
from gmlfm.data.schema import InteractionsSchema, Schema, SideSchema
from gmlfm.data.times import ambiguity_warning, as_times
from gmlfm.errors import DataError, SchemaError


class Builder:
    def __init__(self, tables: Mapping[str, pl.DataFrame], schema: Schema, strict: bool, origins: dict[str, Origin]) -> None:
        self._tables = tables
        self._schema = schema
        self._strict = strict
        self._origins = {name: origins.get(name, Origin(f"the {name} table")) for name in ("interactions", "users", "items")}
        self._warnings: list[str] = []

    def build(self) -> Dataset:
        for name, side in (("users", self._schema.users), ("items", self._schema.items)):
            if side is None and name in self._tables:
                raise SchemaError(f"a table of {name} was given, but the schema has no [{name}].")
            if side is not None and name not in self._tables:
                raise SchemaError(f"the schema has [{name}], but no table of {name} was given.")
        for name, frame in self._tables.items():
            if frame.height == 0:
                raise DataError(f"{self._origins[name].name} is empty; at least one row is needed.")
        spec = self._schema.interactions
        table, origin, roles = self._rows_of_used_kinds(spec, *self._used_rows(spec))
        user_ids, user_type = as_ids(column(table, spec.user, origin, "user"), origin)
        item_ids, item_type = as_ids(column(table, spec.item, origin, "item"), origin)
        usable = self._rows_with_ids(user_ids, item_ids, roles)
        users, user_numbers = self._side("users", self._schema.users, user_ids, user_type, usable)
        items, item_numbers = self._side("items", self._schema.items, item_ids, item_type, usable)
        rows = pl.DataFrame({"user": user_numbers, "item": item_numbers})
        rows = rows.with_columns(moments(table, spec, origin, self._warnings))
        table, origin = chosen_rows(table, roles.is_target, origin)
        usable_targets = usable.filter(roles.is_target)
        interactions = rows.filter(roles.is_target).with_columns(occasion(table, spec, origin, self._warnings))
        interactions = interactions.filter(usable_targets)
        context = pl.DataFrame(
            [
                as_field(column(table, field.name, origin, "context"), field, origin, spec.read.decimal).alias(field.name)
                for field in spec.context
            ]
        )
        context = context.filter(usable_targets) if spec.context else context
        interactions, context, history = self._merged(rows, roles, usable, interactions, context)
        return Dataset(self._schema, interactions, context, users, items, tuple(self._warnings), history)

    def _merged(
        self, rows: pl.DataFrame, roles: EventRoles, usable: pl.Series, interactions: pl.DataFrame, context: pl.DataFrame
    ) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
        """The interactions and their context without repeats, and the rows that count as history alone."""
        places = (roles.is_target & usable).arg_true().to_numpy().astype(np.int64)
        is_history = roles.is_history.filter(roles.is_target & usable).alias("is_history")
        counts = interactions["positive"] & is_history
        if self._schema.interactions.has_targets_beside_history:
            interactions = interactions.with_columns(is_history)
        others = (roles.is_history & ~roles.is_target & usable).arg_true().to_numpy().astype(np.int64)
        repeats, kept = np.empty(0, np.int64), places
        if self._schema.interactions.repeats == "merge":
            n_before = interactions.height
            interactions, context, latest = merge_repeats(interactions, context)
            if n_before > interactions.height:
                self._warnings.append(merged_warning(n_before - interactions.height))
                kept = places[latest]
                repeats = np.setdiff1d(places[counts.to_numpy()], kept, assume_unique=True)
        if len(others) + len(repeats) == 0:
            return interactions, context, no_history()
        return interactions, context, history_alone(rows, kept, repeats, others)

    def _used_rows(self, spec: InteractionsSchema) -> tuple[pl.DataFrame, Origin]:
        """The interactions that `where` lets through; from here on, places are those of these rows."""
        table = self._tables["interactions"]
        used, self._origins["interactions"] = used_rows(table, spec, self._origins["interactions"])
        if used.height == 0:
            raise DataError(nothing_used(self._origins["interactions"].name, spec.where))
        if used.height < table.height:
            self._warnings.append(left_out_note(table.height - used.height, table.height, spec.where))
        return used, self._origins["interactions"]

    def _rows_of_used_kinds(
        self, spec: InteractionsSchema, table: pl.DataFrame, origin: Origin
    ) -> tuple[pl.DataFrame, Origin, EventRoles]:
        """The rows whose kind of event is a target or history; the others are left out before anything is asked of them."""
        kinds = event_kinds(table, spec, origin)
        roles = EventRoles.of(kinds, spec, table.height)
        if kinds is None:
            return table, origin, roles
        tally = KindTally(spec)
        tally.add(kinds, roles)
        tally.check(origin.name)
        self._warnings += tally.notes()
        is_used = roles.is_used
        if not is_used.all():
            table, origin = chosen_rows(table, is_used, origin)
            self._origins["interactions"] = origin
        return table, origin, roles.filter(is_used)

    def _rows_with_ids(self, user_ids: pl.Series, item_ids: pl.Series, roles: EventRoles) -> pl.Series:
        usable = user_ids.is_not_null() & item_ids.is_not_null()
        n_lost = int((~usable).sum())
        if n_lost:
            read = self._schema.interactions.read
            place = self._origins["interactions"].locate(int((~usable).arg_max() or 0))
            problem = f"{place}: {n_lost:,} row(s) of the interactions, this the first, have no user or no item"
            if n_lost > read.tolerate:
                raise DataError(f"{problem}; mend them, or allow them with read = {{ tolerate = {n_lost} }}.")
            self._warnings.append(f"{problem}; left out, as tolerate = {read.tolerate} allows.")
        if not (usable & roles.is_target).any():
            raise DataError(no_usable_row(self._origins["interactions"].name, self._schema.interactions))
        return usable

    def _side(
        self, name: str, spec: SideSchema | None, interaction_ids: pl.Series, id_type: IdType, usable: pl.Series
    ) -> tuple[Side, pl.Series]:
        """The side's entities, and the interactions' ids as numbers of them."""
        listed = pl.Series("id", [], dtype=pl.String)
        if spec is not None:
            table, origin = self._tables[name], self._origins[name]
            listed, listed_type = as_ids(column(table, spec.id, origin, f"[{name}] id"), origin)
            self._check_listed(listed, name, spec.id, origin)
            id_type = "integer" if id_type == listed_type == "integer" else "text"
        # By id, not by the first row that names it: that may be a held-out one, and draws are by number.
        unlisted = interaction_ids.filter(usable).unique().sort()
        unlisted = unlisted.filter(~unlisted.is_in(listed.implode()))
        ids = pl.concat([listed.alias("id"), unlisted.alias("id")])
        if len(listed) and len(unlisted):
            self._count_unlisted(name, interaction_ids, unlisted)
        lookup = pl.DataFrame({"id": ids, "number": np.arange(len(ids), dtype=np.int32)})
        numbers = pl.DataFrame({"id": interaction_ids}).join(lookup, on="id", how="left", maintain_order="left")["number"]
        fields, titles = self._side_columns(name, spec, len(unlisted))
        return Side(ids, id_type, fields, titles, len(listed), self._listing_times(spec, len(unlisted))), numbers

    def _listing_times(self, spec: SideSchema | None, n_unlisted: int) -> pl.Series | None:
        if spec is None or spec.listed is None:
            return None
        table, origin = self._tables["items"], self._origins["items"]
        listed = listing_times(table, spec, origin)
        if spec.listed_format is None and (warning := ambiguity_warning(table[spec.listed], origin, "[items] listed_format")):
            self._warnings.append(warning)
        return listed.extend_constant(None, n_unlisted)

    def _check_listed(self, ids: pl.Series, name: str, id_column: str, origin: Origin) -> None:
        if ids.null_count():
            row = int(ids.is_null().arg_max() or 0)
            raise DataError(f"{origin.locate(row)}: column '{id_column}' is missing; every row of {name} needs an id.")
        repeated = ids.is_duplicated()
        if repeated.any():
            row, repeated_row = (ids == ids[int(repeated.arg_max() or 0)]).arg_true()[:2]
            raise DataError(
                f"{origin.locate(repeated_row)}: column '{id_column}' holds {ids[row]!r} again (first at {origin.locate(row)}; "
                f"{len(ids) - ids.n_unique():,} repeated ids in all); each of the {name} may have one row only."
            )

    def _count_unlisted(self, name: str, interaction_ids: pl.Series, unlisted: pl.Series) -> None:
        n_rows = int(interaction_ids.is_in(unlisted.implode()).sum())
        problem = f"{len(unlisted):,} {name} ({n_rows:,} interactions) have no row in the {name} table, such as {unlisted[0]!r}"
        if self._strict:
            row = int((interaction_ids == unlisted[0]).arg_max() or 0)
            raise DataError(f"{self._origins['interactions'].locate(row)}: {problem}; add them, or drop strict.")
        if len(unlisted) == interaction_ids.drop_nulls().n_unique():
            problem = f"not one {name[:-1]} of the interactions is in the {name} table: are the ids written alike? {problem}"
        self._warnings.append(f"{problem}; kept, with missing attributes.")

    def _side_columns(self, name: str, spec: SideSchema | None, n_unlisted: int) -> tuple[pl.DataFrame, pl.Series | None]:
        if spec is None:
            return pl.DataFrame(), None
        table, origin = self._tables[name], self._origins[name]

        def extended(values: pl.Series, new_name: str) -> pl.Series:
            return values.alias(new_name).extend_constant(None, n_unlisted)

        fields = [
            extended(
                as_field(column(table, field.name, origin, f"[{name}] fields"), field, origin, spec.read.decimal), field.name
            )
            for field in spec.fields
        ]
        if spec.title is None:
            return pl.DataFrame(fields), None
        return pl.DataFrame(fields), extended(as_text(column(table, spec.title, origin, "title"), origin), "title")


def no_usable_row(name: str, spec: InteractionsSchema) -> str:
    of_kind = f" whose {spec.event} is one of targets" if spec.targets is not None else ""
    return f"{name} has no row{of_kind} with both a user and an item."


def moments(table: pl.DataFrame, spec: InteractionsSchema, origin: Origin, warnings: list[str]) -> list[pl.Series]:
    """The column time, if it is declared."""
    if spec.time is None:
        return []
    texts = column(table, spec.time, origin, "time")
    times = as_times(texts, origin, spec.time_format).alias("time")
    if spec.time_format is None and (warning := ambiguity_warning(texts, origin, "[interactions] time_format")):
        warnings.append(warning)
    if times.null_count():
        warnings.append(f"{times.null_count():,} interactions have no time; they count as earliest.")
    return [times]


def occasion(
    table: pl.DataFrame, spec: InteractionsSchema, origin: Origin, warnings: list[str], *, whole: bool = True
) -> list[pl.Series]:
    """positive, and the optional columns label and weight, of rows that are targets."""
    decimal = spec.read.decimal
    result = []
    if spec.label is not None:
        labels = finite(as_number(column(table, spec.label, origin, "label"), origin, decimal), origin).alias("label")
        if labels.null_count():
            warnings.append(f"{labels.null_count():,} interactions have no label; the task 'rating' leaves them out.")
        result.append(labels)
    if spec.weight is not None:
        result.append(_weights(as_number(column(table, spec.weight, origin, "weight"), origin, decimal), origin))
    if spec.positive is None:
        positive = pl.Series("positive", [True]).new_from_index(0, table.height)
    else:
        positive = rows_that_hold(spec.positive, table, spec, origin, "positive").alias("positive")
        if whole and not positive.any():
            raise DataError(f'{origin.name}: no row fulfils positive = "{spec.positive}", so there is nothing to recommend.')
    return [*result, positive]


def listing_times(table: pl.DataFrame, spec: SideSchema, origin: Origin) -> pl.Series:
    """The time from which each item could be had; missing means always."""
    assert spec.listed is not None
    return as_times(column(table, spec.listed, origin, "[items] listed"), origin, spec.listed_format).alias("listed")


def _weights(weights: pl.Series, origin: Origin) -> pl.Series:
    wrong = (weights.is_null() | weights.is_infinite() | (weights <= 0)).fill_null(True)
    if wrong.any():
        row = int(wrong.arg_max() or 0)
        raise DataError(
            f"{origin.locate(row)}: column '{weights.name}' holds the weight {weights[row]} ({int(wrong.sum()):,} such rows); "
            "a weight must be a finite number above 0."
        )
    return weights.alias("weight")


def merge_repeats(table: pl.DataFrame, context: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame, npt.NDArray[np.int64]]:
    """One row for each user, item and context: the latest stays where it stood, weights add up. Third, where those stood."""
    marked = [values.alias(f"context {values.name}") for values in context.iter_columns()]
    keyed = table.with_columns(marked).with_row_index("position")
    keys = ["user", "item", *(values.name for values in marked)]
    if not marked:
        pairs = table["user"].cast(pl.Int64) * (int(table["item"].max()) + 1) + table["item"]  # type: ignore[arg-type]
        n_distinct = pairs.n_unique()
    else:
        n_distinct = keyed.select(pl.struct(keys).n_unique()).item()
    if n_distinct == table.height:
        return table, context, np.arange(table.height, dtype=np.int64)
    order = ["time", "position"] if "time" in table.columns else ["position"]
    combine = [pl.col(name).last() for name in keyed.columns if name not in (*keys, "weight")]
    if "weight" in table.columns:
        combine.append(pl.col("weight").sum())
    merged = keyed.sort(order, nulls_last=False).group_by(keys).agg(combine).sort("position")
    positions = merged["position"].to_numpy().astype(np.int64)
    return merged.select(table.columns), context[positions] if marked else context, positions


def merged_warning(n: int) -> str:
    return f'{n:,} repeated rows were merged into the latest of their user, item and context (repeats = "keep" keeps them).'
