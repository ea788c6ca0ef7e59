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
    why = reasons or {}
    lines = [f"name = {_quote(schema.name)}", "", "[interactions]"]
    lines += _interactions(schema.interactions, why)
    for title, side in (("users", schema.users), ("items", schema.items)):
        if side is not None:
            lines += ["", f"[{title}]", *_side(side, title, why)]
    if schema.min_count:
        pairs = ", ".join(f"{_key(name)} = {count}" for name, count in schema.min_count.items())
        lines += ["", "[encoding]", f"min_count = {{ {pairs} }}"]
    return "\n".join(lines) + "\n"


def _interactions(table: InteractionsSchema, why: Mapping[str, str]) -> list[str]:
    lines = []
    for key in ("path", "user", "item", "time", "time_format", "label", "positive", "weight"):
        value = getattr(table, key)
        if value is not None:
            lines.append(_line(key, _quote(value), why.get(f"interactions.{key}")))
    if table.repeats != "merge":
        lines.append(_line("repeats", _quote(table.repeats), None))
    lines += _unused("interactions", why)
    if table.context:
        lines += ["", "[interactions.context]", *_fields(table.context, "interactions.context", why)]
    return lines + _read(table.read, "interactions", why)


def _side(table: SideSchema, title: str, why: Mapping[str, str]) -> list[str]:
    lines = []
    for key in ("path", "id", "title"):
        value = getattr(table, key)
        if value is not None:
            lines.append(_line(key, _quote(value), why.get(f"{title}.{key}")))
    lines += _unused(title, why)
    if table.fields:
        lines += ["", f"[{title}.fields]", *_fields(table.fields, f"{title}.fields", why)]
    return lines + _read(table.read, title, why)


def _unused(title: str, why: Mapping[str, str]) -> list[str]:
    return [f"# {_comment(line)}" for line in why.get(f"{title}.unused", "").splitlines()]


def _fields(declared: tuple[Field, ...], place: str, why: Mapping[str, str]) -> list[str]:
    return [_line(_key(one.name), _field(one), why.get(f"{place}.{one.name}")) for one in declared]


def _field(one: Field) -> str:
    if one.kind != "set":
        return _quote(one.kind)
    options = ['kind = "set"']
    if one.separator is not None:
        options.append(f"separator = {_quote(one.separator)}")
    options.append(f"weighting = {_quote(one.weighting)}")
    return "{ " + ", ".join(options) + " }"


def _read(options: ReadOptions, title: str, why: Mapping[str, str]) -> list[str]:
    lines = []
    default = ReadOptions()
    for one in fields(ReadOptions):
        value = getattr(options, one.name)
        if value == getattr(default, one.name):
            continue
        if isinstance(value, tuple):
            text = "[" + ", ".join(_quote(word) for word in value) + "]"
        else:
            text = _quote(value) if isinstance(value, str) else str(value)
        lines.append(_line(one.name, text, why.get(f"{title}.read.{one.name}")))
    return ["", f"[{title}.read]", *lines] if lines else []


def _line(key: str, value: str, reason: str | None) -> str:
    text = f"{key} = {value}"
    return f"{text:<40}  # {_comment(reason)}" if reason else text


def _comment(text: str) -> str:
    """One line; TOML forbids control characters even in a comment."""
    return "".join(one if one.isprintable() else "?" for one in " ".join(text.split()))


def _key(name: str) -> str:
    return name if name and set(name) <= _BARE else _quote(name)


def _quote(text: str) -> str:
    # JSON's escapes are TOML's, but TOML also forbids a raw DEL.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
