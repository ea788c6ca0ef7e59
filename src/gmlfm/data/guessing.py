"""A schema guessed from tables: which table is which, which columns are ids, and what kind each field has."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import polars as pl

from gmlfm.data.atomic import ROLES_OF_SUFFIXES, AtomicType, atomic_types
from gmlfm.data.column_words import EVENT_WORDS, ITEM_WORDS, LABEL_WORDS, USER_WORDS, WEIGHT_WORDS, words_of
from gmlfm.data.event_guess import guess_event
from gmlfm.data.plausibility import doubtful_field, doubtful_rating
from gmlfm.data.profiles import DECIMALS, Profile, profile
from gmlfm.data.references import SIDE_WORDS, References
from gmlfm.data.schema import Field, InteractionsSchema, Schema, SideSchema
from gmlfm.data.titles import title_column
from gmlfm.errors import DataError, SchemaError, did_you_mean


@dataclass(frozen=True)
class Guess:
    """A schema, and for each place in it (as 'items.fields.tags') the reason, in words; warnings are about values."""

    schema: Schema
    reasons: dict[str, str] = field(default_factory=dict)
    tables: Mapping[str, str] = field(default_factory=dict)  # interactions, users, items -> the table's name
    warnings: tuple[str, ...] = ()


def guess_schema(
    tables: Mapping[str, pl.DataFrame],
    *,
    name: str = "tables",
    user: str | None = None,
    item: str | None = None,
    known_roles: bool = False,
    types: Mapping[str, Mapping[str, AtomicType]] | None = None,
) -> Guess:
    """Guess from tables by file name. With `known_roles` the names are interactions, users and items themselves.

    types: of a table, the types that an atomic file gave its columns, where their names do not carry them any more.
    """
    for table, frame in tables.items():
        if frame.height == 0:
            raise DataError(f"the {table} table is empty; at least one row is needed.")
    guesser = _Guesser(tables, user, item, types or {})
    roles = {role: role for role in tables} if known_roles else guesser.roles()
    return guesser.schema(name, roles)


class _Guesser:
    def __init__(
        self,
        tables: Mapping[str, pl.DataFrame],
        user: str | None,
        item: str | None,
        types: Mapping[str, Mapping[str, AtomicType]],
    ) -> None:
        self._tables = tables
        self._requested = {"user": user, "item": item}
        self._profiles = {name: _profiles(frame, types.get(name)) for name, frame in tables.items()}
        self._references = References(tables, self._profiles)
        self._reasons: dict[str, str] = {}
        self._warnings: list[str] = []

    def roles(self) -> dict[str, str]:
        """interactions, users, items -> table name."""
        if len(self._tables) > 3:
            raise SchemaError(
                f"{len(self._tables)} tables were given; expected the interactions and at most one of users and one of items."
            )
        by_suffix = {ROLES_OF_SUFFIXES.get(Path(name).suffix): name for name in self._tables}
        if len(by_suffix) == len(self._tables) and None not in by_suffix and "interactions" in by_suffix:
            return {str(role): name for role, name in by_suffix.items()}
        main = max(self._tables, key=self._interactions_score)
        roles = {"interactions": main}
        others = [name for name in self._tables if name != main]
        for name in others:
            fits = {side: self._side_score(name, main, side) for side in ("users", "items") if side not in roles}
            best = max(fits, key=lambda side: fits[side])
            if len(others) == 2 and len(fits) == 2:
                other = others[1]
                straight = fits["users"] + self._side_score(other, main, "items")
                crossed = fits["items"] + self._side_score(other, main, "users")
                best = "users" if straight >= crossed else "items"
            roles[best] = name
        return roles

    def schema(self, name: str, roles: Mapping[str, str]) -> Guess:
        main = roles["interactions"]
        user, item = self._id_columns(main, roles)
        interactions = self._interactions(main, user, item)
        users = self._side(roles["users"], "users", main, user) if "users" in roles else None
        items = self._side(roles["items"], "items", main, item) if "items" in roles else None
        schema = Schema(interactions=interactions, name=name, users=users, items=items)
        return Guess(schema, self._reasons, roles, tuple(self._warnings))

    def _interactions_score(self, name: str) -> float:
        profiles = self._profiles[name].values()
        score = math.log10(1 + self._tables[name].height) / 4
        score += 2.0 * bool(words_of(Path(name).stem) & EVENT_WORDS)
        score += sum(
            bool(column.words & words) for words in (USER_WORDS, ITEM_WORDS) for column in profiles if not column.unique
        )
        score += 0.5 * any(column.looks == "time" for column in profiles)
        for other in self._tables:
            if other != name:
                score += 1.0 * self._references.refers_to(name, other)
        return score

    def _side_score(self, name: str, main: str, side: str) -> float:
        words = SIDE_WORDS[side]
        key, foreign_key, fit = self._references.best(main, name, side)
        score = 2.0 * bool(words_of(Path(name).stem) & words)
        return score + bool(words_of(key) & words) + bool(words_of(foreign_key) & words) + 0.1 * fit

    def _id_columns(self, main: str, roles: Mapping[str, str]) -> tuple[str, str]:
        chosen: dict[str, str] = {}
        for side in ("user", "item"):
            requested = self._requested[side]
            if requested is not None:
                if requested not in self._tables[main].columns:
                    raise SchemaError(
                        f"{main} has no column '{requested}'{did_you_mean(requested, self._tables[main].columns)}"
                    )
                if requested in chosen.values():
                    raise SchemaError(f"'{requested}' cannot be both the user and the item.")
                chosen[side] = requested
                self._reasons[f"interactions.{side}"] = "as asked"
        self._by_reference(main, roles, chosen)
        for side in ("user", "item"):
            if side not in chosen:
                self._by_name(main, side, chosen)
        for side in ("user", "item"):
            if side not in chosen:
                self._by_count(main, side, chosen)
        return chosen["user"], chosen["item"]

    def _by_reference(self, main: str, roles: Mapping[str, str], chosen: dict[str, str]) -> None:
        """Columns that name a side table's key; where both sides fit the same column, the better fit has it."""
        open_sides = [side for side in ("user", "item") if side not in chosen and f"{side}s" in roles]
        fits = {side: self._references.best(main, roles[f"{side}s"], f"{side}s") for side in open_sides}
        for side in sorted(fits, key=lambda candidate: -fits[candidate].score):
            key, foreign_key, _ = fits[side]
            if foreign_key in chosen.values():
                key, foreign_key, _ = self._references.best(main, roles[f"{side}s"], f"{side}s", chosen.values())
            if foreign_key:
                chosen[side] = foreign_key
                self._reasons[f"interactions.{side}"] = f"its values are those of {key} in {Path(roles[f'{side}s']).name}"

    def _by_name(self, main: str, side: str, chosen: dict[str, str]) -> None:
        columns = self._references.named(main, f"{side}s", chosen.values())
        if columns:
            # 'user_id' before 'user_name'; then the column with most values.
            called_ids = self._references.called_ids(main, f"{side}s")
            best = max(columns, key=lambda column: (column.name in called_ids, "id" in column.words, column.n_distinct))
            chosen[side] = best.name
            self._reasons[f"interactions.{side}"] = f"by its name; {best.n_distinct:,} different values"

    def _by_count(self, main: str, side: str, chosen: dict[str, str]) -> None:
        columns = self._references.columns(main, chosen.values())
        candidates = [column for column in columns if column.looks in ("key", "category", "number")]
        candidates = candidates or [column for column in columns if column.looks == "address"]
        candidates = [column for column in candidates if not (column.decimal_comma or column.reason.startswith(DECIMALS))]
        candidates = [column for column in candidates if not self._references.is_counter(main, column)] or candidates
        if not candidates:
            names = ", ".join(self._tables[main].columns)
            raise SchemaError(
                f"no column of {main} looks like the {side}'s id (it has {names}); "
                f"name it with --{side} COLUMN, in Python with schema=."
            )
        candidates.sort(key=lambda column: -column.n_distinct)
        n_open = 2 if side == "user" and "item" not in chosen else 1
        order = self._tables[main].columns
        best = min(candidates[:n_open], key=lambda column: order.index(column.name))
        chosen[side] = best.name
        self._reasons[f"interactions.{side}"] = f"a guess: {best.n_distinct:,} different values; if wrong, use --{side} COLUMN"

    def _interactions(self, main: str, user: str, item: str) -> InteractionsSchema:
        columns = self._references.columns(main, (user, item))
        schema = InteractionsSchema(user=user, item=item)
        numeric = [column for column in columns if column.looks in ("number", "category")]
        times = [column for column in columns if column.looks == "time"]
        times += [column for column in numeric if column.words & {"time", "timestamp", "date"}]
        schema = self._optional(schema, "time", times)
        numbers = [column for column in numeric if self._all_numbers(main, column)]
        schema = self._optional(schema, "label", [column for column in numbers if column.words & LABEL_WORDS])
        if schema.label is not None:
            self._doubt("interactions", doubtful_rating(self._tables[main][schema.label]))
        numbers = [column for column in numbers if column.name not in (schema.label, schema.time)]
        weights = [column for column in numbers if column.words & WEIGHT_WORDS and self._above_zero(main, column)]
        schema = self._optional(schema, "weight", weights)
        schema = self._with_event(
            schema, main, [column.name for column in columns if column.looks in ("category", "text", "key")]
        )
        used = (schema.time, schema.label, schema.weight, schema.event)
        unused = [column for column in columns if column.name not in used]
        if unused:
            lines = [f"{column.name}: {column.reason}" for column in unused]
            self._reasons["interactions.unused"] = "\n".join(
                ["not used; a column of the occasion can be made context:", *lines]
            )
        if any(column.decimal_comma for column in columns if column.name in (schema.label, schema.weight)):
            schema = replace(schema, read=replace(schema.read, decimal=","))
        return schema

    def _optional(self, schema: InteractionsSchema, key: str, candidates: list[Profile]) -> InteractionsSchema:
        if not candidates:
            return schema
        self._reasons[f"interactions.{key}"] = candidates[0].reason
        return replace(schema, **{key: candidates[0].name})  # type: ignore[arg-type]

    def _with_event(self, schema: InteractionsSchema, main: str, candidates: list[str]) -> InteractionsSchema:
        used = (schema.time, schema.label, schema.weight)
        guess = guess_event(self._tables[main][name] for name in candidates if name not in used)
        if guess is None:
            return schema
        self._reasons.update({f"interactions.{key}": reason for key, reason in guess.reasons.items()})
        return replace(schema, event=guess.column, targets=guess.targets, history_events=guess.history)

    def _doubt(self, role: str, sentence: str | None) -> None:
        """Warn, and leave the sentence in the role's part of the description."""
        if sentence is not None:
            self._warnings.append(sentence)
            notes = self._reasons.get(f"{role}.notes")
            self._reasons[f"{role}.notes"] = sentence if notes is None else f"{notes}\n{sentence}"

    def _all_numbers(self, main: str, column: Profile) -> bool:
        values = self._tables[main][column.name]
        return column.decimal_comma or values.cast(pl.Float64, strict=False).null_count() == values.null_count()

    def _above_zero(self, main: str, column: Profile) -> bool:
        values = self._tables[main][column.name].cast(pl.Float64, strict=False)
        return values.null_count() == 0 and bool((values > 0).all())

    def _side(self, table: str, side: str, main: str, foreign_key: str) -> SideSchema:
        key = self._references.key_named_by(main, foreign_key, table, side)
        self._reasons[f"{side}.id"] = f"each value once; names {foreign_key} of {Path(main).name}"
        columns = self._references.columns(table, (key,))
        title_profile = title_column(columns, side)
        title = title_profile.name if title_profile else None
        if title:
            self._reasons[f"{side}.title"] = "shown to people, never trained on"
        declared, unused = [], []
        for column in columns:
            if column.looks in ("category", "set", "number"):
                declared.append(Field(column.name, column.looks, column.separator))
                self._reasons[f"{side}.fields.{column.name}"] = column.reason
            elif column.name != title:
                unused.append(f"{column.name}: {column.reason}")
        declared = [declaration for declaration in declared if declaration.name != title]
        for declaration in declared:
            self._doubt(side, doubtful_field(self._tables[table][declaration.name], side))
        if unused:
            self._reasons[f"{side}.unused"] = "\n".join(["not used:", *unused])
        schema = SideSchema(id=key, fields=tuple(declared), title=title)
        if any(column.decimal_comma for column in columns):
            schema = replace(schema, read=replace(schema.read, decimal=","))
        return schema


def _profiles(frame: pl.DataFrame, types: Mapping[str, AtomicType] | None) -> dict[str, Profile]:
    if types is None:
        types = dict(zip(frame.columns, (atomic_types(frame.columns) or {}).values(), strict=False))
    return {column: profile(frame[column], types.get(column)) for column in frame.columns}
