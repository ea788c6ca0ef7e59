"""Files of tables: csv, tsv, jsonl (each also .gz), parquet, a glob of them, or a member of a zip archive."""

from __future__ import annotations

import glob
import gzip
import json
import zipfile
import zlib
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

ARCHIVE_MARK = "!"  # as in "ml-1m.zip!ml-1m/ratings.dat"
_JSON_LINES = (".jsonl", ".ndjson")
_PARQUET = (".parquet", ".pq")


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
    if any(mark in path for mark in "*?[") and not Path(full).exists():
        files = sorted(glob.glob(full, recursive=True))
        if not files:
            raise DataError(f"no file matches {full}; check path.")
        return files
    return [full]


def file_on_disk(path: str) -> Path:
    """The file itself, or the archive that holds the member; refused where it does not exist."""
    file = Path(path.partition(ARCHIVE_MARK)[0])
    if not file.exists():
        raise DataError(f"{path} does not exist; check path.")
    return file


def is_parquet(path: str) -> bool:
    return Path(path).suffix.lower() in _PARQUET


def is_delimited(path: str) -> bool:
    return not is_parquet(path) and not _is_json_lines(path)


def _is_json_lines(path: str) -> bool:
    return any(suffix.lower() in _JSON_LINES for suffix in Path(path).suffixes[-2:])


def _read_file(path: str, options: ReadOptions) -> Table:
    if is_parquet(path):
        return Table(_parquet(path), Origin(path), options)
    text, encoding = decode(read_bytes(path), options.encoding, path)
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


def read_bytes(path: str) -> bytes:
    """The whole content of a file, of a .gz file, or of a zip archive's member."""
    archive, mark, member = path.partition(f".zip{ARCHIVE_MARK}")
    with reading(path):
        if mark:
            return _zip_member(f"{archive}.zip", member)
        raw = Path(path).read_bytes()
        return gzip.decompress(raw) if path.lower().endswith(".gz") else raw


def _zip_member(archive: str, member: str) -> bytes:
    with zipfile.ZipFile(archive) as opened:
        if member not in opened.namelist():
            raise DataError(f"{archive} has no member '{member}'; it holds {', '.join(opened.namelist()[:10])}.")
        return opened.read(member)


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Turns any error in reading a file into a DataError that names the file."""
    try:
        yield
    except FileNotFoundError as error:
        raise DataError(f"{path} does not exist; check path.") from error
    except EOFError as error:
        raise DataError(f"{path} is truncated: the compressed data end before their end mark; fetch the file again.") from error
    except (gzip.BadGzipFile, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path} is damaged or not what its name says ({error}); fetch the file again.") from error
    except (KeyError, UnicodeError) as error:
        raise DataError(f"{path} could not be read ({error}).") from error
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


def _json_lines(text: str, path: str, options: ReadOptions) -> tuple[pl.DataFrame, npt.NDArray[np.int64], Broken]:
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
    names = list(options.columns or dict.fromkeys(name for row in rows for name in row))
    nulls = set(options.null or ())
    return (
        as_frame({name: [_plain(row.get(name), nulls) for row in rows] for name in names}, path),
        np.array(lines, np.int64),
        broken,
    )


def _plain(value: Any, nulls: set[str]) -> Any:
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False, sort_keys=True)
    return None if isinstance(value, str) and value in nulls else value


def refuse_broken(path: str, broken: Broken, tolerate: int) -> None:
    if broken.count > tolerate:
        raise DataError(
            f"{path} line {broken.first_line} is broken ({broken.first_reason}): {broken.first_text!r}; "
            f"{broken.count:,} such line(s) in all: mend them, or allow them with read = {{ tolerate = {broken.count} }}."
        )
