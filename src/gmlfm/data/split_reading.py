"""Tables of a published split, from files or from the caller, with the place of each row and the hash of the content.

Rows are named by the data's own columns of user and item. A file without a header is taken by position where its first
line holds ids of the data: user, item, and for candidates the candidate; or all columns in the order that the data's own
file declares (`read = { columns = [...] }`).
"""

from __future__ import annotations

import csv
import hashlib
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from gmlfm.data.columns import Origin, as_ids
from gmlfm.data.dataset import Dataset, Side
from gmlfm.data.interop import as_frame
from gmlfm.data.schema import ReadOptions
from gmlfm.errors import DataError
from gmlfm.streams import read_bytes

CANDIDATE = "candidate"
_TARGET = re.compile(r"^\(([^,]+),([^,]+)\)$")


@dataclass(frozen=True)
class SplitTable:
    """Columns as the caller wrote them; sha256 of the (uncompressed) content, which names it on any machine."""

    frame: pl.DataFrame
    origin: Origin
    sha256: str


def read_rows(source: Any, name: str, data: Dataset) -> SplitTable:
    """A part's rows: at least the columns of user and item."""
    spec = data.schema.interactions
    return _read(source, f"{name} rows", data, {spec.user: data.users, spec.item: data.items})


def read_candidates(source: Any, name: str, data: Dataset) -> SplitTable:
    """One row a candidate: user, item and `candidate`; lines of (user,item) and its candidates are unfolded to that."""
    spec = data.schema.interactions
    roles = {spec.user: data.users, spec.item: data.items, CANDIDATE: data.items}
    return _read(source, f"{name} candidates", data, roles)


def id_numbers(table: SplitTable, name: str, side: Side, entity: str) -> npt.NDArray[np.int64]:
    """A column of ids as entity numbers; an id that is missing or not of the data is refused."""
    ids, _ = as_ids(table.frame[name], table.origin)
    if ids.null_count():
        raise DataError(
            f"{table.origin.locate(int(ids.is_null().arg_max() or 0))}: the {entity} is missing; every row needs it."
        )
    lookup = pl.DataFrame({"id": side.ids, "number": np.arange(len(side), dtype=np.int64)})
    numbers = pl.DataFrame({"id": ids}).join(lookup, on="id", how="left", maintain_order="left")["number"]
    if numbers.null_count():
        row = int(numbers.is_null().arg_max() or 0)
        raise DataError(
            f"{table.origin.locate(row)}: the {entity} {ids[row]!r} is not in the data ({numbers.null_count():,} such rows); "
            "ids must be written as in the data."
        )
    return numbers.to_numpy()


def _read(source: Any, name: str, data: Dataset, roles: dict[str, Side]) -> SplitTable:
    if isinstance(source, str | os.PathLike):
        table = _read_file(os.fspath(source), data, roles)
    else:
        frame = as_frame(source, name)
        table = SplitTable(frame, Origin(f"the table of {name}"), hashlib.sha256(frame.write_ndjson().encode()).hexdigest())
    missing = [column for column in roles if column not in table.frame.columns]
    if missing:
        quoted = ", ".join(f"'{column}'" for column in roles)
        raise DataError(
            f"{table.origin.name} has no column '{missing[0]}', only {', '.join(table.frame.columns[:8])}; expected {quoted} "
            "in its header, or no header and ids of the data in this order."
        )
    if table.frame.height == 0:
        raise DataError(f"{table.origin.name} has no rows; leave it out where a part is empty.")
    return table


def _read_file(path: str, data: Dataset, roles: dict[str, Side]) -> SplitTable:
    # Imported here: sources also prepares folders, for which it needs the splits.
    from gmlfm.data.sources.dialect import decode, sniff
    from gmlfm.data.sources.tables import is_delimited, is_parquet, matching, parse_bytes, read_table, stacked

    files = matching(path, Path())
    contents = [read_bytes(file) for file in files]  # once: a pipe gives its content to the first reader
    sha256 = hashlib.sha256(b"".join(contents)).hexdigest()
    options = ReadOptions(null=data.schema.interactions.read.null)
    if is_delimited(files[0]):
        text, _ = decode(contents[0], None, files[0])
        if CANDIDATE in roles and text.lstrip().startswith("("):
            return _unfolded(text, path, list(roles), sha256)
        options = _without_header(text, sniff(text, options, files[0]), data, roles) or options
    if is_parquet(files[0]):
        table = read_table(path, Path(), options)
    else:
        tables = [parse_bytes(content, file, options) for content, file in zip(contents, files, strict=True)]
        table = stacked(path, tables)
    return SplitTable(table.frame, table.origin, sha256)


def _without_header(text: str, options: ReadOptions, data: Dataset, roles: dict[str, Side]) -> ReadOptions | None:
    """How to read a file whose first line is a row already, or a header that the data's own `columns` replace; None where it
    is a header with the names, as far as can be told."""
    separator, quote = options.separator or ",", options.quote or '"'
    mark = separator if len(separator) == 1 else "\x1f"
    header = re.split("[\r\n]", text.lstrip("\r\n"), maxsplit=1)[0].replace(separator, mark)
    try:
        cells = [cell.strip() for cell in next(csv.reader([header], delimiter=mark, quotechar=quote), [])]
    except csv.Error:
        return None
    if all(name in cells for name in roles):
        return None
    read = data.schema.interactions.read
    declared = read.columns
    by_position = (*roles, *(f"column_{place}" for place in range(len(roles) + 1, len(cells) + 1)))
    for names in (declared, by_position):
        if names is None or len(names) != len(cells) or not set(roles) <= set(names):
            continue
        if all((side.ids == cells[names.index(name)]).any() for name, side in roles.items()):
            return replace(options, columns=names)
    if declared is not None and read.header and len(declared) == len(cells):
        return replace(options, columns=declared, header=True)
    return None


def _unfolded(text: str, path: str, names: list[str], sha256: str) -> SplitTable:
    """`(user,item)<TAB>candidate<TAB>candidate...`, a line for each pair, as public repositories write their negatives."""
    targets: list[tuple[str, str]] = []
    lines: dict[tuple[str, str], int] = {}
    candidates: list[str] = []
    lengths: list[int] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        head, *cells = (cell.strip() for cell in line.strip().split("\t"))
        match = _TARGET.match(head)
        if match is None:
            raise DataError(f"{path} line {number} begins with {head[:60]!r}; expected (user,item), a tab and the candidates.")
        user, item = (part.strip().strip("'\"") for part in match.groups())
        if (user, item) in lines:
            raise DataError(
                f"{path} line {number}: user {user!r} and item {item!r} have a list at line {lines[user, item]} already; "
                "give one list a pair."
            )
        if not cells:
            raise DataError(
                f"{path} line {number}: user {user!r} and item {item!r} have an empty list; every list needs a candidate."
            )
        lines[user, item] = number
        targets.append((user, item))
        candidates += cells
        lengths.append(len(cells))
    list_of_row = np.repeat(np.arange(len(targets)), lengths)
    numbers = list(lines.values())
    users, items = (pl.Series([target[side] for target in targets], dtype=pl.String).gather(list_of_row) for side in (0, 1))
    frame = pl.DataFrame([users.alias(names[0]), items.alias(names[1]), pl.Series(names[2], candidates, dtype=pl.String)])
    return SplitTable(frame, Origin(path, lambda row: f"{path} line {numbers[list_of_row[row]]}"), sha256)
