"""How a text file is written: its encoding, separator and quote, guessed from the file itself."""

from __future__ import annotations

import codecs
import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from gmlfm.data.schema import ReadOptions
from gmlfm.errors import DataError

SEPARATORS = ("\t", ";", "::", "|", ",")
_SAMPLE_LINES = 400
_SAMPLE_CHARACTERS = 400_000
_LARGEST_SAMPLE = 1 << 23
_FEWEST_LINES = 10
_LONGEST_FIELD = 1 << 27  # characters; Python's own limit is 128 KiB, and texts of 200 KB are met
_PLAIN = frozenset({"utf-8", "cp1252", "latin-1", "utf-16", "utf-32"})
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def decode(data: bytes, encoding: str | None, name: str) -> tuple[str, str]:
    """The text and the encoding used: the given one, the byte-order mark's, UTF-8, or else Windows' Latin-1."""
    if encoding is None:
        encoding = marked_encoding(data)
    for candidate in (encoding,) if encoding else ("utf-8", "cp1252", "latin-1"):
        try:
            text = data.decode(candidate).removeprefix("\ufeff")
            if candidate not in _PLAIN:
                text.encode()  # utf-7 and unicode_escape can write half a surrogate pair
            return text, candidate
        except LookupError as error:
            raise DataError(f"{name}: the encoding '{candidate}' is not known; try utf-8 or latin-1.") from error
        except UnicodeDecodeError as error:
            if encoding:
                line = data.count(b"\n", 0, error.start) + 1
                raise DataError(
                    f"{name} line {line}: byte 0x{data[error.start]:02x} is not valid {encoding}; "
                    "set another encoding, such as latin-1."
                ) from error
        except UnicodeError as error:
            raise DataError(f"{name} cannot be read as {candidate}; set another encoding, such as latin-1.") from error
    raise AssertionError("latin-1 decodes anything")


def marked_encoding(data: bytes) -> str | None:
    """The encoding that a byte-order mark names."""
    return next((encoding for mark, encoding in _MARKS if data.startswith(mark)), None)


def csv_reader(
    lines: Iterable[str], separator: str, quote: str, *, escape: str | None = None, strict: bool = False
) -> Iterator[list[str]]:
    """The records of delimited lines, whose fields may be as long as a line may be; `quote` is "" where nothing is quoted."""
    # The limit is the whole process's; raising it refuses nobody anything.
    csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_FIELD))
    if not quote:
        return csv.reader(lines, delimiter=separator, quoting=csv.QUOTE_NONE, strict=strict)
    return csv.reader(lines, delimiter=separator, quotechar=quote, escapechar=escape, strict=strict)


def sniff(text: str, options: ReadOptions, name: str) -> ReadOptions:
    """Fill in the separator and quote that `options` leave open."""
    sample = _sample(text)
    quote = options.quote if options.quote is not None else _quote(sample)
    separator = options.separator or _separator(sample, quote, name)
    return replace(options, separator=separator, quote=quote)


def _sample(text: str) -> str:
    """The first lines that are not empty: as many as fit in 400,000 characters, more where lines are very long."""
    length = _SAMPLE_CHARACTERS
    while length < len(text) and length < _LARGEST_SAMPLE and text.count("\n", 0, length) < _FEWEST_LINES:
        length *= 2
    start = text.removeprefix("\ufeff")[:length].replace("\r\n", "\n").replace("\r", "\n")
    lines = start.split("\n")
    if length < len(text) and len(lines) > 2:
        lines.pop()  # cut off in the middle
    return "\n".join([line for line in lines if line.strip()][:_SAMPLE_LINES])


def _quote(sample: str) -> str:
    single = sum(sample.count(f"{mark}'") + sample.count(f"'{mark}") for mark in SEPARATORS)
    double = sum(sample.count(f'{mark}"') + sample.count(f'"{mark}') for mark in SEPARATORS)
    return "'" if single > 2 * double and single >= 4 else '"'


def _separator(sample: str, quote: str, name: str) -> str:
    """The candidate whose number of fields is the same on the largest share of lines; then the one with more fields."""
    best = (-1.0, 0, ",")
    if not sample:
        return ","  # an empty file is refused by its reader
    for candidate in SEPARATORS:
        mark = candidate if len(candidate) == 1 else "\x1f"
        text = sample if len(candidate) == 1 else sample.replace(candidate, mark)
        try:
            widths = [len(row) for row in csv_reader(io.StringIO(text), mark, quote) if row]
        except csv.Error:
            continue
        if not widths:
            continue
        width, n_lines = Counter(widths).most_common(1)[0]
        if width > 1:
            # A header of another width speaks against a candidate: it separates values inside cells.
            fits = round(n_lines / len(widths), 2) - (1.0 if widths[0] != width else 0.0)
            best = max(best, (fits, width, candidate))
    if best[1] == 0:
        first_line = sample.split("\n", 1)[0][:80]
        raise DataError(
            f"{name}: no separator was found in {first_line!r} (tried comma, semicolon, tab, |, ::); "
            'a table needs two columns at least, or set read = { separator = "..." }.'
        )
    return best[2]
