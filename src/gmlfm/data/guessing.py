"""A schema guessed from tables: which table is which, which columns are ids, and what kind each field has."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import polars as pl

from gmlfm.data.columns import Origin, as_ids
from gmlfm.data.profiles import DECIMALS, Profile, profile, words_of
from gmlfm.data.schema import Field, InteractionsSchema, Schema, SideSchema
from gmlfm.errors import DataError, SchemaError, did_you_mean

USER_WORDS = {"user", "buyer", "customer", "client", "member", "reviewer", "person", "visitor", "account", "kunde", "uid"}
USER_WORDS |= {"userid", "subscriber", "shopper", "household", "patient", "student", "reader", "listener", "guest"}
ITEM_WORDS = {
    "item",
    "product",
    "sku",
    "asin",
    "movie",
    "film",
    "article",
    "artikel",
    "book",
    "song",
    "track",
    "listing",
    "offer",
}
ITEM_WORDS |= {"itemid", "course", "isbn", "iid", "catalog", "catalogue", "goods", "game", "recipe", "restaurant", "business"}
EVENT_WORDS = {"interaction", "rating", "purchase", "order", "event", "review", "click", "transaction", "sale", "log", "play"}
LABEL_WORDS = {"rating", "star", "score", "label", "grade", "overall"}
WEIGHT_WORDS = {"quantity", "qty", "menge", "unit", "play", "count"}
_SIDE_WORDS = {"users": USER_WORDS, "items": ITEM_WORDS}
TITLE_WORDS = {"title", "name", "titel", "caption", "headline"}


@dataclass(frozen=True)
class Guess:
    """A schema, and for each place in it (as 'items.fields.tags') the reason, in words."""

    schema: Schema
    reasons: dict[str, str] = field(default_factory=dict)
    tables: Mapping[str, str] = field(default_factory=dict)  # interactions, users, items -> the table's name


def guess_schema(
    frames: Mapping[str, pl.DataFrame],
    *,
    name: str = "tables",
    user: str | None = None,
    item: str | None = None,
    known_roles: bool = False,
) -> Guess:
    """Guess from tables by file name. With `known_roles` the names are interactions, users and items themselves."""
    for table, frame in frames.items():
        if frame.height == 0:
            raise DataError(f"the {table} table is empty; at least one row is needed.")
    guesser = _Guesser(frames, user, item)
    roles = {role: role for role in frames} if known_roles else guesser.roles()
    return guesser.schema(name, roles)


class _Guesser:
    def __init__(self, frames: Mapping[str, pl.DataFrame], user: str | None, item: str | None) -> None:
        self._frames = frames
        self._asked = {"user": user, "item": item}
        self._profiles = {name: {column: profile(frame[column]) for column in frame.columns} for name, frame in frames.items()}
        self._reasons: dict[str, str] = {}

    def roles(self) -> dict[str, str]:
        """interactions, users, items -> table name."""
        if len(self._frames) > 3:
            raise SchemaError(
                f"{len(self._frames)} tables were given; expected the interactions and at most one of users and one of items."
            )
        main = max(self._frames, key=self._interactions_score)
        roles = {"interactions": main}
        others = [name for name in self._frames if name != main]
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
        sides = {}
        for side, met in (("users", user), ("items", item)):
            if side in roles:
                sides[side] = self._side(roles[side], side, main, met)
        schema = Schema(interactions=interactions, name=name, users=sides.get("users"), items=sides.get("items"))
        return Guess(schema, self._reasons, roles)

    def _interactions_score(self, name: str) -> float:
        profiles = self._profiles[name].values()
        score = math.log10(1 + self._frames[name].height) / 4
        score += 2.0 * bool(words_of(Path(name).stem) & EVENT_WORDS)
        score += sum(bool(one.words & words) for words in (USER_WORDS, ITEM_WORDS) for one in profiles if not one.unique)
        score += 0.5 * any(one.looks == "time" for one in profiles)
        for other in self._frames:
            if other != name:
                score += 1.0 * (self._reference(name, other, USER_WORDS | ITEM_WORDS)[2] > 0.5)
        return score

    def _side_score(self, name: str, main: str, side: str) -> float:
        words = _SIDE_WORDS[side]
        key, met, overlap = self._reference(main, name, words)
        score = 2.0 * bool(words_of(Path(name).stem) & words)
        return score + bool(words_of(key) & words) + bool(words_of(met) & words) + 0.1 * overlap

    def _reference(self, main: str, other: str, words: set[str], without: str | None = None) -> tuple[str, str, float]:
        """(key of other, column of main that names it, how well): by its name, the side's words and shared values."""
        best = ("", "", 0.0)
        for key in self._keys(other):
            keys, _ = as_ids(self._frames[other][key.name], Origin(other))
            for met in self._profiles[main].values():
                if met.looks in ("time", "set", "empty", "text") or met.name == without:
                    continue
                sample, _ = as_ids(self._frames[main][met.name].drop_nulls().head(20_000), Origin(main))
                overlap = float(sample.is_in(keys.implode()).mean() or 0.0)  # type: ignore[arg-type]
                if overlap == 0.0:
                    continue
                named = (
                    1.0 * (key.name == met.name) + 0.5 * bool((key.words & met.words) - {"id"}) + 0.7 * bool(met.words & words)
                )
                score = overlap + named + min(math.log10(1 + met.n_distinct), 6) / 10
                if score > best[2]:
                    best = (key.name, met.name, score)
        return best

    def _keys(self, name: str) -> list[Profile]:
        """Columns that could be a side table's id: every value once. A title may be unique too, so short names come first."""
        found = [one for one in self._profiles[name].values() if one.unique and one.looks in ("key", "category", "number")]
        return found or [one for one in self._profiles[name].values() if one.unique]

    def _id_columns(self, main: str, roles: Mapping[str, str]) -> tuple[str, str]:
        chosen: dict[str, str] = {}
        for side in ("user", "item"):
            asked = self._asked[side]
            if asked is not None:
                if asked not in self._frames[main].columns:
                    raise SchemaError(f"{main} has no column '{asked}'{did_you_mean(asked, self._frames[main].columns)}")
                if asked in chosen.values():
                    raise SchemaError(f"'{asked}' cannot be both the user and the item.")
                chosen[side] = asked
                self._reasons[f"interactions.{side}"] = "as asked"
        self._by_reference(main, roles, chosen)
        for side, words in (("user", USER_WORDS), ("item", ITEM_WORDS)):
            if side not in chosen:
                self._by_name(main, side, words, chosen)
        for side in ("user", "item"):
            if side not in chosen:
                self._by_count(main, side, chosen)
        return chosen["user"], chosen["item"]

    def _by_reference(self, main: str, roles: Mapping[str, str], chosen: dict[str, str]) -> None:
        """Columns that name a side table's key; where both sides want one column, the better fit has it."""
        open_sides = [side for side in ("user", "item") if side not in chosen and f"{side}s" in roles]
        fits = {side: self._reference(main, roles[f"{side}s"], _SIDE_WORDS[f"{side}s"]) for side in open_sides}
        for side in sorted(fits, key=lambda one: -fits[one][2]):
            taken = next(iter(chosen.values()), None)
            key, met, _ = fits[side]
            if met == taken:
                key, met, _ = self._reference(main, roles[f"{side}s"], _SIDE_WORDS[f"{side}s"], without=taken)
            if met:
                chosen[side] = met
                self._reasons[f"interactions.{side}"] = f"its values are those of {key} in {Path(roles[f'{side}s']).name}"

    def _by_name(self, main: str, side: str, words: set[str], chosen: dict[str, str]) -> None:
        named = [one for one in self._profiles[main].values() if one.words & words and one.name not in chosen.values()]
        named = [one for one in named if one.looks in ("key", "category", "number", "constant")]
        if named:
            # 'user_id' before 'user_name'; then the one with most values.
            best = max(named, key=lambda one: ("id" in one.words or len(one.words) == 1, one.n_distinct))
            chosen[side] = best.name
            self._reasons[f"interactions.{side}"] = f"by its name; {best.n_distinct:,} different values"

    def _by_count(self, main: str, side: str, chosen: dict[str, str]) -> None:
        left = [one for one in self._profiles[main].values() if one.name not in chosen.values()]
        left = [one for one in left if one.looks in ("key", "category", "number") and not one.decimal_comma]
        left = [one for one in left if not one.reason.startswith(DECIMALS)]
        if not left:
            columns = ", ".join(self._frames[main].columns)
            raise SchemaError(
                f"no column of {main} looks like the {side}'s id (it has {columns}); name it with --{side} COLUMN."
            )
        ranked = sorted(left, key=lambda one: -one.n_distinct)[: 2 if side == "user" and "item" not in chosen else 1]
        order = self._frames[main].columns
        best = min(ranked, key=lambda one: order.index(one.name))
        chosen[side] = best.name
        self._reasons[f"interactions.{side}"] = f"a guess: {best.n_distinct:,} different values; if wrong, use --{side} COLUMN"

    def _interactions(self, main: str, user: str, item: str) -> InteractionsSchema:
        left = [one for one in self._profiles[main].values() if one.name not in (user, item)]
        schema = InteractionsSchema(user=user, item=item)
        times = [one for one in left if one.looks == "time"]
        times += [one for one in left if one.words & {"time", "timestamp", "date"} and one.looks in ("number", "category")]
        schema = self._optional(schema, "time", times)
        numbers = [one for one in left if one.looks in ("number", "category") and self._all_numbers(main, one)]
        schema = self._optional(schema, "label", [one for one in numbers if one.words & LABEL_WORDS])
        weights = [one for one in numbers if one.words & WEIGHT_WORDS and one.name not in (schema.label, schema.time)]
        schema = self._optional(schema, "weight", [one for one in weights if self._above_zero(main, one)])
        unused = [one for one in left if one.name not in (schema.time, schema.label, schema.weight)]
        if unused:
            lines = [f"{one.name}: {one.reason}" for one in unused]
            self._reasons["interactions.unused"] = "\n".join(
                ["not used; a column of the occasion can be made context:", *lines]
            )
        if any(one.decimal_comma for one in left if one.name in (schema.label, schema.weight)):
            schema = replace(schema, read=replace(schema.read, decimal=","))
        return schema

    def _optional(self, schema: InteractionsSchema, key: str, found: list[Profile]) -> InteractionsSchema:
        if not found:
            return schema
        self._reasons[f"interactions.{key}"] = found[0].reason
        return replace(schema, **{key: found[0].name})  # type: ignore[arg-type]

    def _all_numbers(self, main: str, one: Profile) -> bool:
        values = self._frames[main][one.name]
        return one.decimal_comma or values.cast(pl.Float64, strict=False).null_count() == values.null_count()

    def _above_zero(self, main: str, one: Profile) -> bool:
        values = self._frames[main][one.name].cast(pl.Float64, strict=False)
        return values.null_count() == 0 and bool((values > 0).all())

    def _side(self, table: str, side: str, main: str, met: str) -> SideSchema:
        key = self._side_key(table, main, met)
        self._reasons[f"{side}.id"] = f"each value once; names {met} of {Path(main).name}"
        columns = [one for one in self._profiles[table].values() if one.name != key]
        titles = [one for one in columns if one.words & TITLE_WORDS and one.looks in ("text", "category", "key", "set")]
        title = max(titles, key=lambda one: one.n_distinct).name if titles else None
        if title:
            self._reasons[f"{side}.title"] = "shown to people, never trained on"
        declared, unused = [], []
        for one in columns:
            if one.looks in ("category", "set", "number"):
                declared.append(Field(one.name, one.looks, one.separator))
                self._reasons[f"{side}.fields.{one.name}"] = one.reason
            elif one.name != title:
                unused.append(f"{one.name}: {one.reason}")
        declared = [one for one in declared if one.name != title]
        if unused:
            self._reasons[f"{side}.unused"] = "\n".join(["not used:", *unused])
        schema = SideSchema(id=key, fields=tuple(declared), title=title)
        if any(one.decimal_comma for one in columns):
            schema = replace(schema, read=replace(schema.read, decimal=","))
        return schema

    def _side_key(self, table: str, main: str, met: str) -> str:
        matches = [
            (float(as_ids(self._frames[main][met].head(20_000), Origin(main))[0].is_in(ids.implode()).mean() or 0.0), key.name)  # type: ignore[arg-type]
            for key in self._keys(table)
            for ids in [as_ids(self._frames[table][key.name], Origin(table))[0]]
        ]
        if matches and max(matches)[0] > 0:
            return max(matches)[1]
        if met in self._frames[table].columns:
            return met
        keys = self._keys(table)
        if not keys:
            raise SchemaError(f"no column of {table} has every value once, so none can be the id that {met} names.")
        return keys[0].name
