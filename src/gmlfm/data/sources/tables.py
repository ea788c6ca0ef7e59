"""Files of tables: csv, tsv, jsonl (each also .gz), parquet, a glob of them, or a member of a zip archive."""

from __future__ import annotations

import glob
import gzip
import json
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from gmlfm.data.columns import Origin
from gmlfm.data.frames import as_frame
from gmlfm.data.schema import ReadOptions
from gmlfm.data.sources.delimited import Broken, read_delimited
from gmlfm.data.sources.dialect import decode, sniff
from gmlfm.errors import DataError

ARCHIVE_MARK = "!"  # as in "ml-1m.zip!ml-1m/ratings.dat"
_JSON_LINES = (".jsonl", ".ndjson")
_PARQUET = (".parquet", ".pq")


@dataclass(frozen=True)
class Table:
    """A file's rows, where each stood, and how many lines were left out as broken (within what is tolerated)."""

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
    files = _matching(path, folder)
    parts = [_read_file(file, options) for file in files]
    if len(parts) == 1:
        return parts[0]
    for file, part in zip(files, parts, strict=True):
        if part.frame.columns != parts[0].frame.columns:
            raise DataError(f"{file} has the columns {part.frame.columns}, unlike {files[0]} with {parts[0].frame.columns}.")
    starts = np.cumsum([0, *(part.frame.height for part in parts)])

    def place(row: int) -> str:
        index = int(np.searchsorted(starts, row, side="right")) - 1
        return parts[index].origin.at(row - int(starts[index]))

    frame = pl.concat([part.frame for part in parts], how="vertical_relaxed")
    broken = tuple(one for part in parts for one in part.broken)
    return Table(frame, Origin(path, place), parts[0].options, broken)


def _matching(path: str, folder: Path) -> list[str]:
    full = str(folder / path)
    if any(mark in path for mark in "*?[") and not Path(full).exists():
        files = sorted(glob.glob(full, recursive=True))
        if not files:
            raise DataError(f"no file matches {full}; check path.")
        return files
    return [full]


def is_delimited(path: str) -> bool:
    suffixes = [one.lower() for one in Path(path).suffixes]
    return not any(one in (*_JSON_LINES, *_PARQUET) for one in suffixes[-2:])


def _read_file(path: str, options: ReadOptions) -> Table:
    suffixes = [one.lower() for one in Path(path).suffixes]
    if suffixes and suffixes[-1] in _PARQUET:
        return Table(_parquet(path), Origin(path), options)
    text, encoding = decode(read_bytes(path), options.encoding, path)
    if any(one in _JSON_LINES for one in suffixes[-2:]):
        return _json_lines(text, path, replace(options, encoding=encoding))
    found = replace(sniff(text, options, path), encoding=encoding)
    table = read_delimited(text, found, path)
    lines = table.lines
    _refuse_broken(path, table.broken, options.tolerate)
    return Table(table.frame, Origin(path, lambda row: f"{path} line {lines[row]}"), found, ((path, table.broken),))


def read_bytes(path: str) -> bytes:
    """The whole content of a file, of a .gz file, or of a zip archive's member."""
    archive, mark, member = path.partition(f".zip{ARCHIVE_MARK}")
    if mark:
        return _reading(path, lambda: _zip_member(f"{archive}.zip", member))
    if path.lower().endswith(".gz"):
        return _reading(path, lambda: gzip.decompress(Path(path).read_bytes()))
    return _reading(path, Path(path).read_bytes)


def _zip_member(archive: str, member: str) -> bytes:
    with zipfile.ZipFile(archive) as opened:
        if member not in opened.namelist():
            raise DataError(f"{archive} has no member '{member}'; it holds {', '.join(opened.namelist()[:10])}.")
        return opened.read(member)


def _reading(path: str, read: Callable[[], bytes]) -> bytes:
    try:
        return read()
    except FileNotFoundError as error:
        raise DataError(f"{path} does not exist; check path.") from error
    except EOFError as error:
        raise DataError(f"{path} is truncated: the compressed data end before their end mark; fetch the file again.") from error
    except (gzip.BadGzipFile, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path} is damaged or not what its name says ({error}); fetch the file again.") from error
    except OSError as error:
        raise DataError(f"{path} could not be read ({error.strerror or error}).") from error


def _parquet(path: str) -> pl.DataFrame:
    if not Path(path).exists():
        raise DataError(f"{path} does not exist; check path.")
    try:
        return pl.read_parquet(path, hive_partitioning=False)
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"{path} is not a readable Parquet file ({reason}); it may be truncated.") from error


def _json_lines(text: str, path: str, options: ReadOptions) -> Table:
    broken = Broken()
    rows: list[dict[str, Any]] = []
    lines: list[int] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            broken.add(number, line, f"not JSON: {error}")
            continue
        if not isinstance(row, dict):
            broken.add(number, line, "not a JSON object")
            continue
        rows.append(row)
        lines.append(number)
    _refuse_broken(path, broken, options.tolerate)
    names = list(dict.fromkeys(name for row in rows for name in row))
    nulls = set(options.null or ())
    columns = {name: [_plain(row.get(name), nulls) for row in rows] for name in names}
    return Table(as_frame(columns, path), Origin(path, lambda row: f"{path} line {lines[row]}"), options, ((path, broken),))


def _plain(value: Any, nulls: set[str]) -> Any:
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False, sort_keys=True)
    return None if isinstance(value, str) and value in nulls else value


def _refuse_broken(path: str, broken: Broken, tolerate: int) -> None:
    if broken.count > tolerate:
        raise DataError(
            f"{path} line {broken.first_line} is broken ({broken.first_reason}): {broken.first_text!r}; "
            f"{broken.count:,} such line(s) in all: mend them, or allow them with read = {{ tolerate = {broken.count} }}."
        )
