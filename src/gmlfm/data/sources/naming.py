"""The names of a file's columns: its header's, without RecBole's types and each once, or made up where it has no header."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gmlfm.data.atomic import AtomicType, atomic_types
from gmlfm.data.schema import ReadOptions
from gmlfm.data.sources.chunks import read_chunks
from gmlfm.data.sources.delimited import made_up_names
from gmlfm.data.sources.headers import first_row_is_header


@dataclass(frozen=True)
class Naming:
    """The read options `header` and `columns` for a file, with their reasons, and the types that its header declares."""

    header: bool | None = None
    columns: tuple[str, ...] | None = None
    reasons: Mapping[str, str] = field(default_factory=dict)
    types: Mapping[str, AtomicType] = field(default_factory=dict)


def name_columns(path: str, options: ReadOptions, header: bool | None = None) -> Naming:
    """Look at the beginning of a delimited file. `header` is the caller's word on whether it has one."""
    table = next(read_chunks(path, Path(), replace(options, header=False, columns=None)), None)
    if table is None or table.frame.height == 0:
        return Naming(header)
    cells = [str(cell or "").strip() for cell in table.frame.row(0)]
    types = atomic_types(cells)
    has_header = header if header is not None else types is not None or first_row_is_header(table.frame)
    if not has_header:
        why = "as asked" if header is False else "no header line: the first line is a row like the others"
        reasons = {"header": why, "columns": "names made up; change them here and above"}
        return Naming(False, tuple(made_up_names(len(cells))), reasons)
    if types is not None:
        return Naming(True, tuple(types), {"columns": "RecBole's names, without their types"}, types)
    names = [cell or f"column_{place}" for place, cell in enumerate(cells, start=1)]
    if len(set(names)) < len(names):
        return Naming(True, tuple(_each_once(names)), {"columns": "the header has a name twice; the later column is numbered"})
    return Naming(header)


def _each_once(names: Sequence[str]) -> list[str]:
    """A name that stands before already is numbered: title, title_2."""
    used: list[str] = []
    for name in names:
        unique, number = name, 1
        while unique in used or (number > 1 and unique in names):
            number += 1
            unique = f"{name}_{number}"
        used.append(unique)
    return used
