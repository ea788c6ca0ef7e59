"""What callers hand over, checked where it comes in: a check returns the value in its own type, or says what was expected."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gmlfm.errors import OptionError, did_you_mean

_FEW = 3  # choices that are all named where something else comes


def whole_number(value: Any, name: str, least: int = 0, most: int | None = None) -> int:
    """True and False are no numbers, and 2.0 is no count."""
    is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool | np.bool_)
    if not is_whole or value < least or (most is not None and value > most):
        limits = f"{least:,} or more" if most is None else f"{least:,} to {most:,}"
        raise OptionError(f"{name} is {shown(value)}; expected a whole number of {limits}.")
    return int(value)


def one_of(value: Any, name: str, choices: Collection[str]) -> str:
    if isinstance(value, str) and value in choices:
        return value
    hint = did_you_mean(value, choices) if isinstance(value, str) else ""
    if hint and (len(choices) > _FEW or "did you mean" in hint):
        raise OptionError(f"{name} is '{value}'{hint}")
    *others, last = choices
    raise OptionError(f"{name} is {shown(value)}; expected {', '.join(others)}{' or ' if others else ''}{last}.")


def mapping(value: Any, name: str, example: str) -> Mapping[str, Any]:
    """By names, which are texts."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise OptionError(f"{name} is {shown(value)}; expected names and values, such as {example}.")
    return value


def path_of(value: Any, name: str) -> Path:
    if not isinstance(value, str | os.PathLike) or isinstance(os.fspath(value), bytes) or not os.fspath(value):
        raise OptionError(f"{name} is {shown(value)}; expected the path of a folder.")
    return Path(value)


def id_of(value: Any, name: str = "an id") -> Any:
    """A text or a whole number, as tables have them."""
    is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if is_number and (isinstance(value, int) or float(value).is_integer()):
        return value
    if isinstance(value, str) and is_text(value):
        return value
    raise OptionError(f"{name} is {shown(value)}; expected a text or a whole number.")


def ids_of(values: Any, name: str = "ids") -> list[Any]:
    """A list of them; a single one counts as one, not as its letters."""
    if isinstance(values, str | int | np.integer) and not isinstance(values, bool):
        return [id_of(values)]
    is_list = isinstance(values, Sequence | set | frozenset | np.ndarray) or type(values).__name__ == "Series"
    if not is_list or isinstance(values, bytes | bytearray | memoryview | str) or isinstance(values, Mapping):
        raise OptionError(f"{name} are expected in a list; got {shown(values)}.")
    return [id_of(value) for value in values]


def is_text(value: str) -> bool:
    """Whether it can be written as UTF-8: half a surrogate pair cannot."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def shown(value: Any) -> str:
    """A value for a message: short things as they are, others by what they are."""
    if value is None or isinstance(value, str | int | float | complex | list | tuple | dict | set | bytes):
        text = repr(value)
        return text if len(text) <= 60 else f"{text[:60]}..."
    return f"a {type(value).__name__}"
