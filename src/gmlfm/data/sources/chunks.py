"""The same files as `tables.py`, some rows at a time, for tables larger than memory."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO

import numpy as np

from gmlfm.data.columns import Origin
from gmlfm.data.schema import ReadOptions
from gmlfm.data.sources.delimited import LONGEST_RECORD, Broken
from gmlfm.data.sources.dialect import decode, marked_encoding, sniff
from gmlfm.data.sources.tables import (
    Table,
    file_on_disk,
    is_delimited,
    is_parquet,
    matching,
    parse_text,
    reading_parquet,
    refuse_broken,
    stacked,
)
from gmlfm.errors import DataError
from gmlfm.reading import check_regular, parquet_rows, reading, scan_parquet
from gmlfm.streams import open_bytes

_BLOCK = 1 << 25
_LONGEST_LINE = 1 << 27


def read_chunks(path: str, folder: Path, options: ReadOptions, rows: int = 1_000_000) -> Iterator[Table]:
    """Tables of about `rows` rows (Parquet) or 32 MiB of text. Broken lines are counted over the whole of a file."""
    gathered: list[Table] = []
    for file in matching(path, folder):
        if not is_parquet(file):
            yield from _text_chunks(file, options)
            continue
        # Many small files make few large chunks: each chunk costs its reader a pass.
        for chunk in _parquet_chunks(file, options, rows):
            if gathered and sum(table.frame.height for table in gathered) + chunk.frame.height > rows:
                yield stacked(path, gathered)
                gathered = []
            gathered.append(chunk)
    if gathered:
        yield stacked(path, gathered)


def count_rows(path: str, folder: Path) -> int:
    """How many rows to expect: exact for Parquet, guessed from the size for text."""
    total = 0
    for file in matching(path, folder):
        if is_parquet(file):
            check_regular(file)
            with reading_parquet(file):
                total += parquet_rows(file)
        else:
            on_disk = file_on_disk(file)
            total += on_disk.stat().st_size // (8 if on_disk.suffix in (".gz", ".zip") else 25)
    return max(total, 1)


def _parquet_chunks(file: str, options: ReadOptions, rows: int) -> Iterator[Table]:
    check_regular(file)
    with reading_parquet(file):
        total = parquet_rows(file)
    for start in range(0, max(total, 1), rows):
        with reading_parquet(file):
            frame = scan_parquet(file).slice(start, min(rows, total)).collect()
        if frame.height < min(rows, total - start):
            raise DataError(f"{file} says that it has {total:,} rows, but ends after {start + frame.height:,}; it is damaged.")
        yield Table(frame, Origin(file, lambda row, start=start: f"{file} row {start + row + 1}"), options)  # type: ignore[misc]


def _text_chunks(file: str, options: ReadOptions) -> Iterator[Table]:
    dialect: ReadOptions | None = None
    broken = Broken()
    first_line = 1
    for block in _whole_lines(file, options):
        if not block.strip():
            first_line += block.count(b"\n")
            continue
        if dialect is None:
            text, encoding = decode(block, None if _is_wide(options.encoding or "") else options.encoding, file)
            dialect = replace(sniff(text, options, file) if is_delimited(file) else options, encoding=encoding)
        else:
            text, _ = decode(block, dialect.encoding, file)
        table = parse_text(text, file, replace(dialect, tolerate=2**62), first_line)
        for _, in_block in table.broken:
            broken.merge(in_block)
        refuse_broken(file, broken, options.tolerate)
        if is_delimited(file):  # the first block has settled the names, and has had the header
            dialect = replace(dialect, columns=tuple(table.frame.columns), header=False)
        first_line += text.count("\n")
        yield replace(table, options=dialect)


def _whole_lines(file: str, options: ReadOptions) -> Iterator[bytes]:
    """Blocks that end with a line: at the last line end before which quotes are closed.

    A quote that is never closed would hold back the rest of the file; no reader takes a record for longer than
    LONGEST_RECORD lines, so beyond that the last line end will do.
    """
    quote = (options.quote if options.quote is not None else '"').encode() if is_delimited(file) else b""
    rest = b""
    with reading(file), open_bytes(file) as stream:
        for data in _blocks(stream, options.encoding):
            rest += data
            end = _cut(rest, quote)
            if not end and len(rest) > _LONGEST_LINE:
                raise DataError(f"{file} has a line of more than {_LONGEST_LINE >> 20} MiB; is it a table of lines?")
            if end:
                yield rest[:end]
                rest = rest[end:]
    if rest.strip():
        yield rest


def _cut(data: bytes, quote: bytes) -> int:
    """Where a block may end: behind the last line end with an even number of quotes before it, or behind the last at all."""
    last = data.rfind(b"\n") + 1
    if not quote or not last:
        return last
    characters = np.frombuffer(data, np.uint8, last)
    ends = np.flatnonzero(characters == ord("\n"))
    if len(quote) == 1:
        quotes = np.flatnonzero(characters == ord(quote))
    else:  # beyond ASCII
        quotes = np.array([match.start() for match in re.finditer(re.escape(quote), data[:last])], np.int64)
    closed = np.flatnonzero(np.searchsorted(quotes, ends) % 2 == 0)
    if len(closed) and len(ends) - 1 - closed[-1] <= LONGEST_RECORD:
        return int(ends[closed[-1]]) + 1
    return last if len(ends) > LONGEST_RECORD else 0


def _blocks(stream: IO[bytes], encoding: str | None) -> Iterator[bytes]:
    """Blocks of bytes in which a line end is one byte: UTF-16 and UTF-32 are turned into UTF-8 on the way."""
    block = stream.read(_BLOCK)
    encoding = encoding or marked_encoding(block) or "utf-8"
    if not _is_wide(encoding):
        while block:
            yield block
            block = stream.read(_BLOCK)
        return
    decoder = codecs.getincrementaldecoder(encoding)()
    while block:
        yield decoder.decode(block).encode()
        block = stream.read(_BLOCK)
    yield decoder.decode(b"", final=True).encode()


def _is_wide(encoding: str) -> bool:
    return encoding.lower().replace("_", "").replace("-", "").startswith(("utf16", "utf32"))
