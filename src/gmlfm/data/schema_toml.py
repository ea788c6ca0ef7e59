"""A Schema written out as `dataset.toml`, with a comment beside each line that has a reason."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields

from gmlfm.data.schema import Field, InteractionsSchema, ReadOptions, Schema, SideSchema

_BARE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


def to_toml(schema: Schema, reasons: Mapping[str, str] | None = None) -> str:
    """TOML text that `Schema.from_toml` reads back to the same schema.

    `reasons` maps a place ('interactions.user', 'items.fields.tags') to the comment written there.
    """
    reasons = reasons or {}
    lines = [f"name = {_quote(schema.name)}", "", "[interactions]"]
    lines += _interactions(schema.interactions, reasons)
    for title, side in (("users", schema.users), ("items", schema.items)):
        if side is not None:
            lines += ["", f"[{title}]", *_side(side, title, reasons)]
    if schema.min_count:
        pairs = ", ".join(f"{_key(name)} = {count}" for name, count in schema.min_count.items())
        lines += ["", "[encoding]", f"min_count = {{ {pairs} }}"]
    return "\n".join(lines) + "\n"


def _interactions(table: InteractionsSchema, reasons: Mapping[str, str]) -> list[str]:
    lines = []
    for key in ("path", "user", "item", "where", "time", "time_format", "label", "positive", "weight"):
        value = getattr(table, key)
        if value is not None:
            lines.append(_assignment(key, _quote(value), reasons.get(f"interactions.{key}")))
    if table.repeats != "merge":
        lines.append(_assignment("repeats", _quote(table.repeats), None))
    if table.event is not None:
        lines.append(_assignment("event", _quote(table.event), reasons.get("interactions.event")))
    for key, kinds in (("targets", table.targets), ("history_events", table.history_events)):
        if kinds is not None:
            lines.append(_assignment(key, _list(kinds), reasons.get(f"interactions.{key}")))
    if table.ties != "strict":
        lines.append(_assignment("ties", _quote(table.ties), reasons.get("interactions.ties")))
    lines += _remarks("interactions", reasons)
    if table.context:
        lines += ["", "[interactions.context]", *_fields(table.context, "interactions.context", reasons)]
    return lines + _read(table.read, "interactions", reasons)


def _side(table: SideSchema, title: str, reasons: Mapping[str, str]) -> list[str]:
    lines = []
    for key in ("path", "id", "title", "listed", "listed_format"):
        value = getattr(table, key)
        if value is not None:
            lines.append(_assignment(key, _quote(value), reasons.get(f"{title}.{key}")))
    if table.sells_once != "auto":
        lines.append(_assignment("sells_once", str(table.sells_once).lower(), reasons.get(f"{title}.sells_once")))
    lines += _remarks(title, reasons)
    if table.fields:
        lines += ["", f"[{title}.fields]", *_fields(table.fields, f"{title}.fields", reasons)]
    return lines + _read(table.read, title, reasons)


def _remarks(title: str, reasons: Mapping[str, str]) -> list[str]:
    """Comments on a table as a whole: what is doubtful in it, and which columns are not used."""
    notes = [f"# note: {_comment(line)}" for line in reasons.get(f"{title}.notes", "").splitlines()]
    return notes + [f"# {_comment(line)}" for line in reasons.get(f"{title}.unused", "").splitlines()]


def _fields(declared: tuple[Field, ...], place: str, reasons: Mapping[str, str]) -> list[str]:
    return [_assignment(_key(field.name), _field(field), reasons.get(f"{place}.{field.name}")) for field in declared]


def _field(field: Field) -> str:
    if field.kind != "set":
        return _quote(field.kind)
    options = ['kind = "set"']
    if field.separator is not None:
        options.append(f"separator = {_quote(field.separator)}")
    options.append(f"weighting = {_quote(field.weighting)}")
    return "{ " + ", ".join(options) + " }"


def _read(options: ReadOptions, title: str, reasons: Mapping[str, str]) -> list[str]:
    lines = []
    default = ReadOptions()
    for option in fields(ReadOptions):
        value = getattr(options, option.name)
        if value == getattr(default, option.name):
            continue
        if isinstance(value, tuple):
            text = _list(value)
        else:
            text = _quote(value) if isinstance(value, str) else str(value).lower()
        lines.append(_assignment(option.name, text, reasons.get(f"{title}.read.{option.name}")))
    return ["", f"[{title}.read]", *lines] if lines else []


def _assignment(key: str, value: str, reason: str | None) -> str:
    text = f"{key} = {value}"
    return f"{text:<40}  # {_comment(reason)}" if reason else text


def _comment(text: str) -> str:
    """On a single line; TOML forbids control characters even in a comment."""
    return "".join(character if character.isprintable() else "?" for character in " ".join(text.split()))


def _key(name: str) -> str:
    return name if name and set(name) <= _BARE else _quote(name)


def _list(words: tuple[str, ...]) -> str:
    return "[" + ", ".join(_quote(word) for word in words) + "]"


def _quote(text: str) -> str:
    # JSON's escapes are TOML's, but TOML also forbids a raw DEL.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
