"""Somebody else's text, shown as text where a terminal or a Markdown page would take it for orders."""

from __future__ import annotations

import html
import re

# C0, DEL and C1 (of which ESC and CSI begin a terminal's commands), line and paragraph separators, embeddings, overrides and
# isolates of the writing direction, and halves of surrogate pairs.
_ORDERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_MARKDOWN = re.compile(r"[\\`*\[\]|]")


def terminal_text(text: str, *, lines: bool = False) -> str:
    """What would steer a terminal is written out as Python writes it: \\x1b, \\u202e. lines: line ends stay."""
    shown = _ORDERS.sub(lambda match: _written_out(match[0]), text)
    return shown if lines else shown.replace("\n", "\\n")


def json_text(document: str) -> str:
    """A JSON document with the same characters written as JSON writes them; a reader gets the same value."""
    return _ORDERS.sub(_as_json, document)


def markdown_text(text: str) -> str:
    """For a paragraph, heading or table cell of Markdown: no HTML, no links, no cell border, one line."""
    harmless = html.escape(terminal_text(" ".join(text.splitlines())), quote=False)
    return _MARKDOWN.sub(lambda match: f"\\{match[0]}", harmless)


def _written_out(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


def _as_json(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[place]:02x}{units[place + 1]:02x}" for place in range(0, len(units), 2))
