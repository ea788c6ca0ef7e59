"""Every error a user can cause. A message says what came, what was expected and what to do, in one sentence."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import ClassVar


class GmlfmError(Exception):
    """Something the caller can put right: the command line prints the message alone and exits with `exit_code`."""

    exit_code: ClassVar[int] = 2  # wrong use


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


def did_you_mean(name: str, choices: Iterable[str]) -> str:
    """'; did you mean ...?' where a choice is close to the name, otherwise the list of choices."""
    names = list(choices)
    by_case = {choice.lower(): choice for choice in names}
    close = get_close_matches(name.lower(), by_case, n=1, cutoff=0.6)
    if close:
        return f"; did you mean '{by_case[close[0]]}'?"
    shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
    return f"; known: {shown}." if names else "."
