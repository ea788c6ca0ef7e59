"""gmlfm observe RUN FILE: what users just did."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gmlfm.cli.options import TABLE_HELP, add_command, add_run, load_run, read_file, shared_options
from gmlfm.cli.output import console_for, print_json, verbatim, warnings_as_notes
from gmlfm.data.columns import Origin
from gmlfm.data.schema import ReadOptions
from gmlfm.data.sources.tables import read_table
from gmlfm.errors import DataError, GmlfmError
from gmlfm.progress import activity
from gmlfm.reading import parse_json, reason

if TYPE_CHECKING:
    from gmlfm.recommender import Recommender

_STDIN = "standard input"
_CHUNK = 1 << 20  # bytes that are taken of a pipe at once, or less where less has come
_LONGEST_LINE = 1 << 24


def add_to(commands: Any) -> None:
    parser = add_command(
        commands,
        "observe",
        "what users just did, for the next recommendation",
        "Keep rows of what users just did (columns user, item and perhaps time and event) with the run: they count from the "
        "next recommendation on, without training, and are on the disk when the command ends. Users may be new; new items "
        "enter the catalogue by their attributes (--items). Of a file, all rows are kept or none; lines of standard input "
        "are kept as they come.",
        [
            "gmlfm observe runs/demo clicks.csv",
            'echo \'{"user": "b0000003", "item": "t000000001"}\' | gmlfm observe runs/demo -',
            "tail -f clicks.jsonl | gmlfm observe runs/demo - --json",
            "gmlfm observe runs/demo clicks.csv --items new.csv",
        ],
    )
    add_run(parser)
    parser.add_argument("file", metavar="FILE", help=f"{TABLE_HELP}; - for JSON lines on standard input")
    parser.add_argument(
        "--items", metavar="TABLE", help="items with their attributes; those that the catalogue lacks enter it, as by add-items"
    )
    shared_options(parser)
    parser.set_defaults(run=run)


@dataclass
class _Counts:
    """What was kept so far; n_lines: of standard input."""

    n: int = 0
    n_duplicates: int = 0
    n_new_users: int = 0
    n_new_items: int = 0
    n_lines: int = 0


def run(options: argparse.Namespace) -> None:
    is_stream, counts = options.file == "-", _Counts()
    parts: Iterable[tuple[Any, Origin]] = _parts_of_stdin(counts) if is_stream else _whole_file(options.file)
    console, noted = console_for(stderr=options.json), set[str]()
    items = None if options.items is None else read_file(options.items)
    recommender = load_run(options)
    try:
        for rows, origin in parts:
            with warnings_as_notes(console, noted):
                _observe(recommender, rows, items, origin, counts)
    except GmlfmError as error:
        if not is_stream:
            raise
        raise type(error)(f"{str(error).rstrip('.')}; {_so_far(counts)}.") from error
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"interrupted; {_so_far(counts)}." if is_stream else "interrupted.") from None
    if options.json:
        figures = {"observed": counts.n, "duplicates": counts.n_duplicates, "new_users": counts.n_new_users}
        figures["new_items"] = counts.n_new_items
        print_json({"run": options.run_folder, **figures})
        return
    noun = "row of what users did counts" if counts.n == 1 else "rows of what users did count"
    numbers = {"known already": counts.n_duplicates, "new users": counts.n_new_users, "new items": counts.n_new_items}
    extra = [f"{n:,} {words}" for words, n in numbers.items() if n]
    rest = f" ({', '.join(extra)})" if extra else ""
    console.print(f"{counts.n:,} {noun} from now on in {verbatim(options.run_folder)}{rest}.", soft_wrap=True)


def _observe(recommender: Recommender, rows: Any, items: Any, origin: Origin, counts: _Counts) -> None:
    with activity(f"observing {len(rows):,} rows, after {counts.n + counts.n_duplicates:,}"):
        report = recommender.observe(rows, items=items, origin=origin)
    counts.n += report.n
    counts.n_duplicates += report.n_duplicates
    counts.n_new_users += report.n_new_users
    counts.n_new_items += report.n_new_items


def _so_far(counts: _Counts) -> str:
    return f"lines 1 to {counts.n_lines:,} were kept" if counts.n_lines else "no line before was kept"


def _whole_file(path: str) -> list[tuple[Any, Origin]]:
    with activity(f"reading {path}"):
        table = read_table(path, Path(), ReadOptions())
    return [(table.frame, table.origin)]


def _parts_of_stdin(counts: _Counts) -> Iterator[tuple[Any, Origin]]:
    """As many lines as have come, with their numbers. They count as kept when the next ones are asked for."""
    for block in _blocks_of_stdin():
        rows, numbers = _rows(block, counts.n_lines + 1)
        if rows:
            yield rows, Origin(_STDIN, lambda row, numbers=numbers: f"line {numbers[row]:,} of {_STDIN}")  # type: ignore[misc]
        counts.n_lines += block.count(b"\n")


def _rows(block: bytes, start: int) -> tuple[list[dict[str, Any]], list[int]]:
    rows, numbers = [], []
    for number, text in enumerate(block.split(b"\n"), start):
        if not text.strip():
            continue
        try:
            row = parse_json(text.decode("utf-8-sig"))
            if not isinstance(row, dict):
                raise ValueError("it is no object")
        except ValueError as error:
            example = '{"user": "u17", "item": "i3"}'
            raise DataError(
                f"line {number:,} of {_STDIN} is broken ({reason(error)}); expected a row such as {example}."
            ) from error
        rows.append(row)
        numbers.append(number)
    return rows, numbers


def _blocks_of_stdin() -> Iterator[bytes]:
    """Whole lines; the last one may lack its end."""
    rest = b""
    stream: Any = sys.stdin.buffer
    while block := stream.read1(_CHUNK):
        whole, end, begun = block.rpartition(b"\n")
        if end:
            yield rest + whole + end
            rest = b""
        rest += begun
        if len(rest) > _LONGEST_LINE:
            raise DataError(f"a line of {_STDIN} has more than {_LONGEST_LINE >> 20} MiB; expected a JSON object on each.")
    if rest:
        yield rest + b"\n"
