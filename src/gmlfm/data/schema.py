"""What a dataset is made of: the tables, their columns and what each column means. The form of `dataset.toml`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args

from gmlfm.errors import SchemaError, did_you_mean
from gmlfm.reading import file_status, reason
from gmlfm.streams import read_text

Part = Literal["user", "context", "item"]
Kind = Literal["category", "set", "number"]
Weighting = Literal["none", "mean", "sqrt"]
Repeats = Literal["merge", "keep"]
Ties = Literal["strict", "shuffle", "file"]
SellsOnce = Literal["auto"] | bool
_KINDS = ("targets", "history_events")
_MOST_BYTES = 1 << 24  # of a dataset.toml
_MOST_DOTS = 100  # of a line: what tomllib does for a key grows with the square of its parts
_QUOTED = re.compile(r""""(?:[^"\\\n]|\\.)*"|'[^'\n]*'|#[^\n]*""")


@dataclass(frozen=True)
class Field:
    """An attribute field of a user, an item or an occasion."""

    name: str
    kind: Kind
    separator: str | None = None
    weighting: Weighting = "mean"


@dataclass(frozen=True)
class ReadOptions:
    """How a text file is written. None means: detected from the file; of `header`: a first line unless `columns` are given."""

    separator: str | None = None
    encoding: str | None = None
    quote: str | None = None
    null: tuple[str, ...] | None = None
    header: bool | None = None
    columns: tuple[str, ...] | None = None
    decimal: str | None = None
    tolerate: int = 0

    @property
    def has_header(self) -> bool:
        """Whether the first line holds the columns' names; names in `columns` then go before them."""
        return self.columns is None if self.header is None else self.header


@dataclass(frozen=True)
class InteractionsSchema:
    """The table of interactions: a row says that a user chose, bought or rated an item; `where` chooses the rows.

    `event` names the column of the kind of a row: rows of the kinds in `targets` are learned and recommended, those in
    `history_events` count as what a user did before; None means all kinds. `ties`: how rows of one time follow one another.
    """

    user: str
    item: str
    path: str | None = None
    where: str | None = None
    time: str | None = None
    time_format: str | None = None
    label: str | None = None
    positive: str | None = None
    weight: str | None = None
    repeats: Repeats = "merge"
    ties: Ties = "strict"
    event: str | None = None
    targets: tuple[str, ...] | None = None
    history_events: tuple[str, ...] | None = None
    context: tuple[Field, ...] = ()
    read: ReadOptions = field(default_factory=ReadOptions)

    @property
    def has_targets_beside_history(self) -> bool:
        """Whether rows of some target kinds may not count as history."""
        return self.history_events is not None and not (self.targets and set(self.targets) <= set(self.history_events))


@dataclass(frozen=True)
class SideSchema:
    """The table of users or of items: one row each.

    Of items alone: `listed` names the column of the time from which an item could be had; `sells_once` says that an item is
    gone with its first sale ("auto": where nine in ten sold items have one row).
    """

    id: str
    path: str | None = None
    fields: tuple[Field, ...] = ()
    title: str | None = None
    read: ReadOptions = field(default_factory=ReadOptions)
    listed: str | None = None
    listed_format: str | None = None
    sells_once: SellsOnce = "auto"


@dataclass(frozen=True)
class Schema:
    """A whole dataset's description."""

    interactions: InteractionsSchema
    name: str = "tables"
    users: SideSchema | None = None
    items: SideSchema | None = None
    min_count: Mapping[str, int] = field(default_factory=dict)

    def fields_of(self, part: Part) -> tuple[Field, ...]:
        if part == "context":
            return self.interactions.context
        side = self.users if part == "user" else self.items
        return side.fields if side else ()

    def all_fields(self) -> list[tuple[Part, Field]]:
        """Every declared field with its part, in the order of a training row: user, context, item."""
        return [(part, declared) for part in get_args(Part) for declared in self.fields_of(part)]

    def min_count_of(self, side: str, name: str) -> int:
        """How often a value must occur to have a row: by `side.name`, by `name`, or 1."""
        return self.min_count.get(f"{side}.{name}", self.min_count.get(name, 1))

    @classmethod
    def from_toml(cls, path: Path) -> Schema:
        if file_status(path) is None:
            raise SchemaError(f"{path} could not be read (No such file or directory).")
        try:
            text = read_text(path, _MOST_BYTES).replace("\r\n", "\n").replace("\r", "\n")
            if max(line.count(".") for line in _QUOTED.sub("", text).split("\n")) > _MOST_DOTS:
                raise ValueError(f"a key has more than {_MOST_DOTS} parts")
            content = tomllib.loads(text)
        except OSError as error:
            raise SchemaError(f"{path} could not be read ({reason(error)}).") from error
        except (ValueError, RecursionError) as error:
            raise SchemaError(f"{path} is not a valid TOML file: {reason(error)}.") from error
        return cls.from_dict(content, source=str(path), needs_paths=True)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any], *, source: str = "schema", needs_paths: bool = False) -> Schema:
        """Build from the nested form of `dataset.toml`; every key is checked."""
        content = _table(content, source)
        _only(content, {"name", "interactions", "users", "items", "encoding"}, source)
        encoding = _table(content.get("encoding", {}), f"{source} [encoding]")
        _only(encoding, {"min_count", "read"}, f"{source} [encoding]")
        shared_read = _read_options(encoding.get("read", {}), f"{source} [encoding] read", ReadOptions())
        if "interactions" not in content:
            raise SchemaError(f"{source} has no [interactions] table; it needs at least path, user and item.")
        schema = cls(
            name=_text(content.get("name", "tables"), f"{source} name"),
            interactions=_interactions(content["interactions"], f"{source} [interactions]", shared_read, needs_paths),
            users=_side(content, "users", source, shared_read, needs_paths),
            items=_side(content, "items", source, shared_read, needs_paths),
            min_count=_min_count(encoding.get("min_count", {}), f"{source} [encoding] min_count"),
        )
        schema._check_min_count(source)
        if schema.items and schema.items.listed and not schema.interactions.time:
            raise SchemaError(
                f"{source} [items] listed says since when an item can be had, which needs the times of [interactions]; "
                "name their column with time, or leave listed out."
            )
        return schema

    def _check_min_count(self, source: str) -> None:
        parts_by_name: dict[str, list[str]] = {"user": ["user"], "item": ["item"]}
        for part, declared in self.all_fields():
            parts_by_name.setdefault(declared.name, []).append(part)
        qualified = {f"{part}.{name}" for name, parts in parts_by_name.items() for part in parts}
        for key in self.min_count:
            if key not in parts_by_name and key not in qualified:
                raise SchemaError(f"{source} [encoding] min_count names '{key}', no field{did_you_mean(key, parts_by_name)}")
            if key in parts_by_name and len(parts_by_name[key]) > 1:
                choices = " or ".join(f"'{part}.{key}'" for part in parts_by_name[key])
                raise SchemaError(f"{source} [encoding] min_count '{key}' fits several fields; write {choices}.")


def _interactions(value: Any, where: str, shared: ReadOptions, needs_path: bool) -> InteractionsSchema:
    table = _with_header_in_read(_table(value, where), where)
    _only(table, _keys_of(InteractionsSchema), where)
    others = ("context", "read", *_KINDS)
    texts = {key: _text(table[key], f"{where} {key}") for key in table if key not in others}
    kinds = {key: _event_kinds(table[key], f"{where} {key}") for key in _KINDS if key in table}
    for key in ("user", "item", *(("path",) if needs_path else ())):
        if key not in texts:
            raise SchemaError(f"{where} has no '{key}'; write {key} = \"...\".")
    if texts["user"] == texts["item"]:
        raise SchemaError(f"{where} names the column '{texts['user']}' as user and as item; they must be two columns.")
    if texts.get("repeats", "merge") not in get_args(Repeats):
        raise SchemaError(f"{where} repeats is '{texts['repeats']}'; expected 'merge' or 'keep'.")
    if "time_format" in texts and "time" not in texts:
        raise SchemaError(f'{where} has time_format but no time; name the column with time = "...".')
    if texts.get("ties", "strict") not in get_args(Ties):
        raise SchemaError(f"{where} ties is '{texts['ties']}'; expected 'strict', 'shuffle' or 'file'.")
    _check_event(texts, kinds, where)
    return InteractionsSchema(
        **texts,  # type: ignore[arg-type]
        targets=kinds.get("targets"),
        history_events=kinds.get("history_events"),
        context=_fields(table.get("context", {}), f"{where} context"),
        read=_read_options(table.get("read", {}), f"{where} read", shared),
    )


def _event_kinds(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(kind, str) and "\0" not in kind for kind in value):
        raise SchemaError(f'{where} is {value!r}; expected a list of kinds of events, such as ["purchase"].')
    if len(set(value)) < len(value):
        raise SchemaError(f"{where} names a kind twice: {value!r}.")
    return tuple(value)


def _check_event(texts: Mapping[str, str], kinds: Mapping[str, tuple[str, ...]], where: str) -> None:
    """A column of events and kinds of them need each other."""
    if "event" not in texts:
        for key in kinds:
            raise SchemaError(f'{where} has {key} but no event; name the column of the kinds with event = "...".')
        return
    if not kinds:
        raise SchemaError(
            f'{where} has event but neither targets nor history_events; say what is learned, such as targets = ["purchase"].'
        )
    for key in ("user", "item", "time"):
        if texts.get(key) == texts["event"]:
            raise SchemaError(f"{where} names the column '{texts['event']}' as {key} and as event; they must be two columns.")


def _side(content: Mapping[str, Any], key: str, source: str, shared: ReadOptions, needs_path: bool) -> SideSchema | None:
    if key not in content:
        return None
    where = f"{source} [{key}]"
    table = _with_header_in_read(_table(content[key], where), where)
    of_items = {"listed", "listed_format", "sells_once"}
    _only(table, _keys_of(SideSchema) - (of_items if key == "users" else set()), where)
    texts = {name: _text(table[name], f"{where} {name}") for name in table if name not in ("fields", "read", "sells_once")}
    if "listed_format" in texts and "listed" not in texts:
        raise SchemaError(f'{where} has listed_format but no listed; name the column with listed = "...".')
    sells_once = table.get("sells_once", "auto")
    if sells_once not in ("auto", True, False) or (isinstance(sells_once, int) and not isinstance(sells_once, bool)):
        raise SchemaError(f'{where} sells_once is {sells_once!r}; expected true, false or "auto".')
    for name in ("id", *(("path",) if needs_path else ())):
        if name not in texts:
            raise SchemaError(f"{where} has no '{name}'; write {name} = \"...\".")
    return SideSchema(
        **texts,
        sells_once=sells_once,
        fields=_fields(table.get("fields", {}), f"{where} fields"),
        read=_read_options(table.get("read", {}), f"{where} read", shared),
    )


def _fields(value: Any, where: str) -> tuple[Field, ...]:
    return tuple(_field(name, options, f"{where}.{name}") for name, options in _table(value, where).items())


def _field(name: str, value: Any, where: str) -> Field:
    options = {"kind": value} if isinstance(value, str) else _table(value, where)
    _only(options, {"kind", "separator", "weighting"}, where)
    kind = _text(options.get("kind", ""), f"{where} kind")
    if kind not in get_args(Kind):
        hint = did_you_mean(kind, get_args(Kind))
        raise SchemaError(f"{where} has kind '{kind}'; expected category, set or number{hint if '?' in hint else '.'}")
    weighting = _text(options.get("weighting", "mean"), f"{where} weighting")
    if weighting not in get_args(Weighting):
        raise SchemaError(f"{where} has weighting '{weighting}'; expected none, mean or sqrt.")
    separator = options.get("separator")
    if kind != "set" and (separator is not None or "weighting" in options):
        raise SchemaError(f'{where} is a {kind}, but separator and weighting belong to a set; set kind = "set".')
    if separator is not None and not _text(separator, f"{where} separator"):
        raise SchemaError(f'{where} separator is empty; give the text between two values, such as "|".')
    return Field(name, kind, separator, weighting)  # type: ignore[arg-type]


def _with_header_in_read(table: dict[str, Any], where: str) -> dict[str, Any]:
    """A table's own key `header` is the one of its `read`."""
    if "header" not in table:
        return table
    read = _table(table.get("read", {}), f"{where} read")
    if read.get("header", table["header"]) != table["header"]:
        raise SchemaError(f"{where} has header and another header in read; keep one of them.")
    rest = {key: value for key, value in table.items() if key != "header"}
    return {**rest, "read": {**read, "header": table["header"]}}


def _read_options(value: Any, where: str, shared: ReadOptions) -> ReadOptions:
    table = _table(value, where)
    _only(table, _keys_of(ReadOptions), where)
    options: dict[str, Any] = {}
    for key, option in table.items():
        if key == "tolerate":
            if not isinstance(option, int) or isinstance(option, bool) or option < 0:
                raise SchemaError(f"{where} tolerate is {option!r}; expected how many broken lines may be left out, 0 or more.")
            options[key] = option
        elif key == "header":
            if not isinstance(option, bool):
                raise SchemaError(f"{where} header is {option!r}; expected true or false: is the first line one of names?")
            options[key] = option
        elif key in ("null", "columns"):
            if not isinstance(option, list) or not all(isinstance(word, str) for word in option):
                raise SchemaError(f"{where} {key} is {option!r}; expected a list of texts.")
            options[key] = tuple(option)
            if key == "columns" and len(set(option)) < len(option):
                raise SchemaError(f"{where} columns names a column twice: {option!r}.")
        else:
            options[key] = _text(option, f"{where} {key}")
    for key in ("separator", "decimal"):
        if options.get(key) == "":
            raise SchemaError(f"{where} {key} is empty; leave it out to have it found.")
    if len(options.get("quote", "")) > 1 or len(options.get("decimal", ".")) > 1:
        raise SchemaError(f"{where} quote and decimal are one character each.")
    return replace(shared, **options)


def _min_count(value: Any, where: str) -> dict[str, int]:
    table = _table(value, where)
    for key, count in table.items():
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise SchemaError(f"{where} {key} is {count!r}; expected a whole number of 1 or more.")
    return dict(table)


def _table(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise SchemaError(f"{where} is {value!r}; expected a table of keys and values.")
    for key in value:
        if not isinstance(key, str):
            raise SchemaError(f"{where} has the key {key!r}; expected a text.")
    return dict(value)


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise SchemaError(f"{where} is {value!r}; expected text in quotes.")
    return value


def _keys_of(table_class: type) -> set[str]:
    return {key.name for key in fields(table_class)}


def _only(table: Mapping[str, Any], allowed: set[str], where: str) -> None:
    for key in table:
        if key not in allowed:
            raise SchemaError(f"{where} has an unknown key '{key}'{did_you_mean(key, sorted(allowed))}")
