"""What the fuzzers share: how many cases there are, their chance, damages to content, and what must hold of each case.

A case is a name and a function of an empty folder. It passes where the function returns, or raises a GmlfmError whose message
is one printable line, and where no half-written file is left. GMLFM_FUZZ multiplies the number of drawn cases.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import numpy as np

from gmlfm.errors import GmlfmError

Case = Callable[[Path], object]
Value = TypeVar("Value")
DAMAGES = ("flip", "flips", "cut", "zeros", "doubled", "inserted", "dropped", "noise")
_CONTROL = {*map(chr, range(32)), *map(chr, range(127, 160)), *map(chr, range(0xD800, 0xE000)), "\u2028", "\u2029", "\u202e"}


def n_cases(base: int) -> int:
    return max(1, round(base * float(os.environ.get("GMLFM_FUZZ", "1"))))


def generator(*key: object) -> np.random.Generator:
    """The same chance for the same key, on any machine."""
    return np.random.default_rng(zlib.crc32(repr(key).encode()))


def damaged(content: bytes, kind: str, rng: np.random.Generator) -> bytes:
    """Content with a fault of this kind at a drawn place; the end, where many formats keep their index, is drawn often."""
    size = len(content)
    place = int(rng.integers(size)) if rng.random() < 0.6 else size - 1 - int(rng.integers(min(size, 300)))
    length = int(rng.integers(1, 40))
    if kind in ("flip", "flips"):
        changed = bytearray(content)
        for position in [place] if kind == "flip" else rng.integers(size, size=20).tolist():
            changed[position] ^= int(rng.integers(1, 256))
        return bytes(changed)
    if kind == "cut":
        return content[:place]
    if kind == "zeros":
        return content[:place] + bytes(length) + content[place + length :]
    if kind == "doubled":
        return content[: place + length] + content[place:]
    if kind == "inserted":
        return content[:place] + rng.bytes(length) + content[place:]
    if kind == "dropped":
        return content[:place] + content[place + length :]
    return rng.bytes(size)


def check(case: Case, folder: Path) -> str:
    """Run a case in its folder; the message in which it ended, '' where it succeeded."""
    message = ""
    try:
        case(folder)
    except GmlfmError as error:
        message = str(error)
        assert message, "an empty message"
        assert not _CONTROL & set(message), f"not one printable line: {message!r}"
        assert len(message) < 2_000, f"a message of {len(message)} characters"
    assert list(half_written(folder)) == []
    return message


def half_written(folder: Path) -> Iterator[str]:
    """Drafts under their temporary names; what a preparation keeps to go on from does not count."""
    for root, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name != ".work"]
        for name in (*folders, *files):
            if name.startswith(".") or name.endswith((".draft", ".old", ".tmp")):
                yield os.path.join(root, name)


def named(cases: Iterator[tuple[str, Case]]) -> dict[str, Case]:
    """Cases by name; a name that occurs twice would hide a case."""
    by_name: dict[str, Case] = {}
    for name, case in cases:
        assert name not in by_name, name
        by_name[name] = case
    return by_name
