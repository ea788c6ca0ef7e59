"""Delimited text (CSV and the like), however it was written. No line is dropped without being counted.

Two readers give the same table: a fast one for text without quotes, where a line's fields can be counted by its
separators, and a careful one that walks the lines where quotes may hide separators and line ends.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import polars as pl

from gmlfm.data.schema import ReadOptions
from gmlfm.data.sources.dialect import csv_reader
from gmlfm.errors import DataError

NULL_WORDS = ("", "NULL", "null", "NA", "N/A", "NaN", "nan", "None", "\\N")
_UNIT = "\x1f"
LONGEST_RECORD = 200  # lines; a stray quote must not swallow the rest of a file
_ROWS_PER_CHUNK = 200_000


@dataclass
class Broken:
    """Lines whose number of fields is not the header's."""

    count: int = 0
    first_line: int = 0
    first_text: str = ""
    first_reason: str = ""

    def add(self, line_number: int, text: str, reason: str) -> None:
        if self.count == 0:
            self.first_line, self.first_text, self.first_reason = line_number, text.rstrip("\r\n")[:120], reason
        self.count += 1

    def merge(self, other: Broken) -> None:
        """Add the broken lines of another chunk of the same file."""
        if other.count:
            self.add(other.first_line, other.first_text, other.first_reason)
            self.count += other.count - 1


@dataclass
class DelimitedText:
    """A table of texts, the file line of each row, and the broken lines."""

    frame: pl.DataFrame
    lines: npt.NDArray[np.int64]
    broken: Broken = field(default_factory=Broken)


def read_delimited(text: str, options: ReadOptions, name: str) -> DelimitedText:
    """Every column as text; the words of `null` as missing. `options` must name separator and quote."""
    separator, quote = options.separator or ",", options.quote if options.quote is not None else '"'
    text = text.removeprefix("\ufeff")
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if len(separator) > 1 or ord(separator) > 127:
        if _UNIT in text:
            raise DataError(f"{name} holds the control character 0x1F, so the separator '{separator}' cannot be read.")
        text, separator = text.replace(separator, _UNIT), _UNIT
    if not text.strip():
        raise DataError(f"{name} is empty; expected a header line and rows.")
    nulls = list(NULL_WORDS if options.null is None else options.null)
    if quote and quote in text:
        table = _read_carefully(text, separator, quote, options, nulls, name)
        if separator == _UNIT and options.separator != _UNIT:  # a separator inside quotes is text again
            table.frame = table.frame.with_columns(pl.all().str.replace_all(_UNIT, options.separator or "", literal=True))
        return table
    return _read_fast(text.encode(), separator, options, nulls, name)


def _read_fast(data: bytes, separator: str, options: ReadOptions, nulls: list[str], name: str) -> DelimitedText:
    if not data.endswith(b"\n"):
        data += b"\n"
    characters = np.frombuffer(data, dtype=np.uint8)
    ends = np.flatnonzero(characters == ord("\n"))
    starts = np.concatenate(([0], ends[:-1] + 1))
    separators = np.flatnonzero(characters == ord(separator))
    n_fields = np.diff(np.searchsorted(separators, ends), prepend=0) + 1
    filled = ends > starts
    header_line = int(filled.argmax())
    header = data[starts[header_line] : ends[header_line]].decode().split(separator)
    names = _column_names(header, options, name)
    usable = filled & (n_fields == len(names))
    if options.has_header:
        filled[header_line] = usable[header_line] = False
    broken = Broken()
    broken_lines = np.flatnonzero(filled & ~usable)
    if len(broken_lines):
        line = int(broken_lines[0])
        text = data[starts[line] : ends[line]].decode().replace(_UNIT, "::")
        broken.add(line + 1, text, f"{n_fields[line]} fields instead of {len(names)}")
        broken.count = len(broken_lines)
    if not usable.all():
        data = _keep_lines(data, starts, ends, usable)
    if not data:
        return DelimitedText(pl.DataFrame(schema=dict.fromkeys(names, pl.String)), np.empty(0, np.int64), broken)
    # polars reads an empty cell as missing; where the caller does not call it so, null words are looked for afterwards.
    empty_is_null = "" in nulls
    frame = pl.read_csv(
        data,
        has_header=False,
        new_columns=names,
        separator=separator,
        quote_char=None,
        infer_schema=False,
        null_values=nulls if empty_is_null else None,
    )
    frame = frame if empty_is_null else _with_nulls(frame.fill_null(""), nulls)
    return DelimitedText(frame, np.flatnonzero(usable) + 1, broken)


def _keep_lines(
    data: bytes, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], usable: npt.NDArray[np.bool_]
) -> bytes:
    edges = np.flatnonzero(np.diff(np.concatenate(([False], usable, [False])).astype(np.int8)))
    return b"".join(data[starts[begin] : ends[stop - 1] + 1] for begin, stop in edges.reshape(-1, 2))


def _read_carefully(text: str, separator: str, quote: str, options: ReadOptions, nulls: list[str], name: str) -> DelimitedText:
    broken = Broken()
    records = _records(text, separator, quote, None, broken)
    first_line, header = next(records, (1, []))
    names = _column_names(header, options, name)
    records = _records(text, separator, quote, len(names), broken, after=first_line if options.has_header else 0)
    chunks: list[pl.DataFrame] = []
    lines: list[int] = []
    rows: list[list[str]] = []
    for line, record in records:
        lines.append(line)
        rows.append(record)
        if len(rows) == _ROWS_PER_CHUNK:
            chunks.append(_frame(rows, names, nulls))
            rows = []
    chunks.append(_frame(rows, names, nulls))
    return DelimitedText(pl.concat(chunks), np.array(lines, dtype=np.int64), broken)


def _frame(rows: list[list[str]], names: list[str], nulls: list[str]) -> pl.DataFrame:
    columns = list(zip(*rows, strict=True)) or [()] * len(names)
    frame = pl.DataFrame([pl.Series(name, values, dtype=pl.String) for name, values in zip(names, columns, strict=True)])
    return _with_nulls(frame, nulls)


def _with_nulls(frame: pl.DataFrame, nulls: list[str]) -> pl.DataFrame:
    return frame.with_columns(pl.when(pl.all().is_in(nulls)).then(None).otherwise(pl.all()).name.keep())


class _Lines:
    """Physical lines that can be put back, counted as they are taken."""

    def __init__(self, text: str) -> None:
        self._lines = io.StringIO(text, newline="\n")
        self._returned: list[str] = []
        self.taken: list[str] = []
        self.number = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        if len(self.taken) >= LONGEST_RECORD:
            raise StopIteration
        line = self._returned.pop() if self._returned else self._lines.readline()
        if not line:
            raise StopIteration
        self.taken.append(line)
        self.number += 1
        return line

    def begin_record(self) -> int:
        self.taken = []
        return self.number + 1

    def put_back_all_but_first(self) -> None:
        self._returned.extend(reversed(self.taken[1:]))
        self.number -= len(self.taken) - 1

    def exhausted(self) -> bool:
        if not self._returned:
            line = self._lines.readline()
            if not line:
                return True
            self._returned.append(line)
        return False


def _records(
    text: str, separator: str, quote: str, n_fields: int | None, broken: Broken, after: int = 0
) -> Iterator[tuple[int, list[str]]]:
    """(first line, fields) of each complete record. After a stray quote, reading goes on with the next line."""
    lines = _Lines(text)
    escape = "\\" if _escapes_quotes(text, separator, quote) else None

    def reader() -> Iterator[list[str]]:
        return csv_reader(lines, separator, quote, escape=escape, strict=True)

    current = reader()
    while True:
        line = lines.begin_record()
        reason = ""
        try:
            record = next(current)
        except StopIteration:
            if lines.exhausted():
                return
            current = reader()
            continue
        except csv.Error as error:
            is_open = len(lines.taken) >= LONGEST_RECORD
            reason = f"a quote that the next {LONGEST_RECORD} lines do not close" if is_open else str(error)
            record, current = [], reader()
        if not lines.taken:
            return
        if line <= after or (not record and not reason):
            continue
        if reason or (n_fields is not None and len(record) != n_fields):
            broken.add(line, lines.taken[0], reason or f"{len(record)} fields instead of {n_fields}")
            if len(lines.taken) > 1:
                lines.put_back_all_but_first()
                current = reader()
            continue
        yield line, record


def _escapes_quotes(text: str, separator: str, quote: str) -> bool:
    """Whether a backslash escapes a quote, instead of ending a quoted cell: it does where no field can end behind it, or where
    the quotes do not pair up otherwise."""
    escaped = f"\\{quote}"
    if escaped not in text or f"{quote}{quote}" in text.replace(escaped, ""):
        return False
    followers = {text[index : index + 1] for index in _ends(text, escaped)}
    return bool(followers - {separator, "\r", "\n", ""}) or text.count(quote) % 2 == 1


def _ends(text: str, part: str) -> Iterator[int]:
    index = text.find(part)
    while index >= 0:
        yield index + len(part)
        index = text.find(part, index + 1)


def _column_names(cells: list[str], options: ReadOptions, name: str) -> list[str]:
    """The columns' names, from the options or the cells of the first line, which may be a header."""
    if options.columns is not None:
        if options.has_header and len(cells) != len(options.columns):
            raise DataError(
                f"{name} line 1: the header has {len(cells)} names where read gives {len(options.columns)} columns; "
                "name as many, or leave columns out."
            )
        return list(options.columns)
    if not options.has_header:
        return made_up_names(len(cells))
    names = [cell.strip() or f"column_{position}" for position, cell in enumerate(cells, start=1)]
    if len(set(names)) < len(names):
        column = next(column for column, count in Counter(names).items() if count > 1)
        raise DataError(
            f"{name} line 1: the column '{column}' occurs twice in the header; rename one of them, "
            "or give all names with read = { header = true, columns = [...] }."
        )
    return names


def made_up_names(n: int) -> list[str]:
    """What the columns of a file without a header are called."""
    return [f"column_{position}" for position in range(1, n + 1)]
