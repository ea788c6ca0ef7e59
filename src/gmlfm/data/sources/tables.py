"""Files of tables: csv, tsv, jsonl (each also .gz), parquet, a glob of them, or a member of a zip archive."""

from __future__ import annotations

import glob
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from gmlfm.data.columns import Origin
from gmlfm.data.interop import as_frame
from gmlfm.data.schema import ReadOptions
from gmlfm.data.sources.delimited import Broken, read_delimited
from gmlfm.data.sources.dialect import decode, sniff
from gmlfm.errors import DataError
from gmlfm.reading import READ_ERRORS, check_parquet_size, check_regular, file_status, parse_json, read_parquet, reading, reason
from gmlfm.streams import ARCHIVE_MARK, read_bytes

_JSON_LINES = (".jsonl", ".ndjson")
_PARQUET = (".parquet", ".pq")
_MOST_EMPTY_CELLS = 10_000_000


@dataclass(frozen=True)
class Table:
    """A file's rows, the place of each in the file, and the lines left out as broken (within what is tolerated)."""

    frame: pl.DataFrame
    origin: Origin
    options: ReadOptions
    broken: tuple[tuple[str, Broken], ...] = ()

    def warnings(self) -> list[str]:
        return [
            f"{name}: {broken.count:,} broken line(s) left out, the first is line {broken.first_line} ({broken.first_reason}): "
            f"{broken.first_text!r}"
            for name, broken in self.broken
            if broken.count
        ]


def read_table(path: str, folder: Path, options: ReadOptions) -> Table:
    """Read one path of a `dataset.toml`, relative to its folder. Globs are read in the order of their names."""
    return stacked(path, [_read_file(file, options) for file in matching(path, folder)])


def stacked(name: str, tables: list[Table]) -> Table:
    """Tables of several files as one, whose origin still names the file of each row."""
    expected = tables[0]
    if len(tables) == 1:
        return expected
    for table in tables:
        if table.frame.columns != expected.frame.columns:
            raise DataError(
                f"{table.origin.name} has the columns {table.frame.columns}, "
                f"unlike {expected.origin.name} with {expected.frame.columns}."
            )
    starts = np.cumsum([0, *(table.frame.height for table in tables)])

    def place(row: int) -> str:
        index = int(np.searchsorted(starts, row, side="right")) - 1
        return tables[index].origin.locate(row - int(starts[index]))

    frame = pl.concat([table.frame for table in tables], how="vertical_relaxed")
    return Table(frame, Origin(name, place), expected.options, tuple(broken for table in tables for broken in table.broken))


def matching(path: str, folder: Path) -> list[str]:
    """The files that a path of a `dataset.toml` stands for: itself, or what its glob matches."""
    full = str(folder / path)
    if any(mark in path for mark in "*?[") and file_status(archive_of(full)) is None:
        with reading(full):
            # The folder is not part of the pattern: its own name may have brackets.
            names = sorted(glob.glob(path, root_dir=folder, recursive=True))
        if not names:
            raise DataError(f"no file matches {full}; check path.")
        return [str(folder / name) for name in names]
    return [full]


def archive_of(path: str) -> str:
    """The file itself, or the archive that holds the member."""
    archive, mark, _ = path.partition(f".zip{ARCHIVE_MARK}")
    return f"{archive}.zip" if mark else path


def file_on_disk(path: str) -> Path:
    """The file itself, or the archive that holds the member; refused where it does not exist."""
    if file_status(archive_of(path)) is None:
        raise DataError(f"{path} does not exist; check path.")
    return Path(archive_of(path))


def is_parquet(path: str) -> bool:
    return Path(path).suffix.lower() in _PARQUET


def is_delimited(path: str) -> bool:
    return not is_parquet(path) and not _is_json_lines(path)


def _is_json_lines(path: str) -> bool:
    return any(suffix.lower() in _JSON_LINES for suffix in Path(path).suffixes[-2:])


def _read_file(path: str, options: ReadOptions) -> Table:
    if is_parquet(path):
        return Table(_parquet(path), Origin(path), options)
    return parse_bytes(read_bytes(path), path, options)


def parse_bytes(content: bytes, path: str, options: ReadOptions) -> Table:
    """A table from the content of a text file."""
    text, encoding = decode(content, options.encoding, path)
    return parse_text(text, path, replace(options, encoding=encoding))


def parse_text(text: str, path: str, options: ReadOptions, first_line: int = 1) -> Table:
    """A table from (a chunk of) a text file; `first_line` is the number of its first line in the file."""
    if _is_json_lines(path):
        frame, lines, broken = _json_lines(text, path, options)
        dialect = options
    else:
        dialect = sniff(text, options, path)
        table = read_delimited(text, dialect, path)
        frame, lines, broken = table.frame, table.lines, table.broken
    broken.first_line += first_line - 1
    refuse_broken(path, broken, options.tolerate)
    origin = Origin(path, lambda row: f"{path} line {lines[row] + first_line - 1}")
    return Table(frame, origin, dialect, ((path, broken),))


def _parquet(path: str) -> pl.DataFrame:
    check_regular(path)
    with reading_parquet(path):
        check_parquet_size(path)
        return read_parquet(path)


@contextmanager
def reading_parquet(path: str) -> Iterator[None]:
    """Turns what polars raises on a damaged file, its panic included, into one sentence."""
    try:
        yield
    except READ_ERRORS as error:
        raise DataError(f"{path} is not a readable Parquet file ({reason(error)}); it may be truncated or damaged.") from error


def _json_lines(text: str, path: str, options: ReadOptions) -> tuple[pl.DataFrame, npt.NDArray[np.int64], Broken]:
    broken = Broken()
    rows: list[dict[str, Any]] = []
    lines: list[int] = []
    nulls = set(options.null or ())
    for number, line in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = parse_json(line)
            if not isinstance(row, dict):
                raise ValueError("it is no object")
            row = {name: _plain(value, nulls) for name, value in row.items()}
        except UnicodeEncodeError:
            broken.add(number, line, "it holds half of a surrogate pair, which is no character")
            continue
        except (ValueError, RecursionError) as error:
            broken.add(number, line, f"not a JSON object: {reason(error)}")
            continue
        rows.append(row)
        lines.append(number)
    names = list(options.columns or dict.fromkeys(name for row in rows for name in row))
    n_empty = len(names) * len(rows) - sum(map(len, rows))
    if options.columns is None and n_empty > _MOST_EMPTY_CELLS and n_empty > 100 * sum(map(len, rows)):
        raise DataError(
            f"{path} has {len(names):,} different keys over {len(rows):,} lines, few of them in each; "
            "a table has about the same keys in every line."
        )
    return as_frame({name: [row.get(name) for row in rows] for name in names}, path), np.array(lines, np.int64), broken


def _plain(value: Any, nulls: set[str]) -> Any:
    """Texts and numbers as they are, an object as its JSON; what is nested in a list as text."""
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False, sort_keys=True)
    if isinstance(value, list):
        return [str(member) if isinstance(member, dict | list) else member for member in value]
    return None if isinstance(value, str) and value in nulls else value


def refuse_broken(path: str, broken: Broken, tolerate: int) -> None:
    if broken.count > tolerate:
        raise DataError(
            f"{path} line {broken.first_line} is broken ({broken.first_reason}): {broken.first_text!r}; "
            f"{broken.count:,} such line(s) in all: mend them, or allow them with read = {{ tolerate = {broken.count} }}."
        )
