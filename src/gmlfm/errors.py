"""Every error a user can cause. A message says what came, what was expected and what to do, in one sentence."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import ClassVar

# Line ends, terminal escapes, marks that turn the direction of writing, and halves of surrogate pairs.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_MOST_CHARACTERS = 1_500


class GmlfmError(Exception):
    """Something the caller can put right: the command line prints the message alone and exits with `exit_code`.

    Messages quote file names, cells and servers' replies, so whatever they hold is shown as text, on one line.
    """

    exit_code: ClassVar[int] = 2  # wrong use

    def __init__(self, message: str = "") -> None:
        super().__init__(_shortened(printable(message)))


class SchemaError(GmlfmError):
    """The description of the data is wrong, or does not fit the tables."""


class DataError(GmlfmError):
    """A table or file holds something that cannot be used."""


class NotFiniteError(DataError):
    """A model gives a score that is no number."""


class OptionError(GmlfmError):
    """An option or argument has a value that is not allowed."""


class NotSupportedError(OptionError):
    """This model cannot do what was asked."""


def printable(text: str) -> str:
    r"""Foreign text for a terminal: control characters as their escapes, so that a line end is \n and an escape \x1b."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def _shortened(text: str) -> str:
    """The beginning says what came, the end what to do; what lies between may be a cell of a megabyte."""
    if len(text) <= _MOST_CHARACTERS:
        return text
    return f"{text[: _MOST_CHARACTERS - 400]} ... {text[-400:]}"


def did_you_mean(name: str, choices: Iterable[str]) -> str:
    """'; did you mean ...?' where a choice is close to the name, otherwise the list of choices."""
    names = list(choices)
    by_case = {choice.lower(): choice for choice in names}
    close = get_close_matches(name.lower(), by_case, n=1, cutoff=0.6)
    if close:
        return f"; did you mean '{by_case[close[0]]}'?"
    shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
    return f"; known: {shown}." if names else "."
