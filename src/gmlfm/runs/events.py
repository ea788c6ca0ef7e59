"""What happened to a run since it was trained, in an append-only file beside its generations: a line an event, or up to a
thousand observed rows, with a checksum (see `event_lines`)."""

from __future__ import annotations

import os
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path

from gmlfm.errors import DataError
from gmlfm.runs.event_lines import (
    BACK,
    FORGOT,
    LOG,
    OBSERVED,
    SOLD,
    Event,
    ObservedRow,
    encoded,
    hash_of,
    observed_content,
    parsed,
)
from gmlfm.storage import sync, write_problem

_ROWS_PER_LINE = 1_000
_ENDING = 256  # bytes of the last line that tell it from any other: they hold its checksum
_BLOCK = 1 << 20  # bytes that are written at once


@dataclass
class _Read:
    """What was read of a file so far: its events but for what users were observed to do, those rows, the number of the last
    event, how many lines there were, and how the last whole one ends and where."""

    events: list[Event] = field(default_factory=list)
    observed: list[ObservedRow] = field(default_factory=list)
    last: int = -1
    n_lines: int = 0
    ending: bytes = b""
    end: int = 0


class EventLog:
    """Who appends or rewrites holds the writers' lock. Reading needs none: a line without its end does not count yet.

    Only what was added since the last reading is read again, and what is appended here is not read at all.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read = _Read()
        self._reading = threading.RLock()

    def events(self) -> list[Event]:
        """All but what users were observed to do; the list is the caller's."""
        with self._reading:
            return list(self._refresh().events)

    def observed(self) -> list[ObservedRow]:
        """What users were observed to do, in order of arrival; not to be changed. The list grows as rows come, and it is
        another one where the file was written anew."""
        with self._reading:
            return self._refresh().observed

    def append(self, *contents: Event) -> list[Event]:
        """All events, with these as the last; they are on the disk when this returns."""
        with self._reading:
            self._write(contents)
            return list(self._read.events)

    def append_observed(self, rows: Sequence[ObservedRow]) -> None:
        """They are on the disk when this returns, and none of them is where it fails."""
        starts = range(0, len(rows), _ROWS_PER_LINE)
        with self._reading:
            self._write(observed_content(list(rows[start : start + _ROWS_PER_LINE])) for start in starts)
            self._read.observed += rows

    def text_without(self, user: str) -> tuple[str, list[Event]]:
        """The file without the events of this user and with the hash of their id as the last, to be written in its place; and
        its events, but for what users were observed to do."""
        with self._reading:
            read = self._refresh()
            events = read.events or list(_numbered([_header()], 0))
            lines = self._lines_with(lambda row: row[0] != user) if read.events else map(encoded, events)
            forgot = {"kind": FORGOT, "user": hash_of(events[0]["salt"], user)}
            forgotten = list(_numbered([forgot], max(read.last, 0) + 1))
            return b"".join(chain(lines, map(encoded, forgotten))).decode(), [*events, *forgotten]

    def text_without_rows(self, rows: Iterable[ObservedRow]) -> str:
        """The file without these observed rows, each as often as it is given, to be written in its place."""
        left = Counter(rows)

        def stays(row: ObservedRow) -> bool:
            if not left[row]:
                return True
            left[row] -= 1
            return False

        with self._reading:
            self._refresh()
            return b"".join(self._lines_with(stays)).decode()

    def _lines_with(self, stays: Callable[[ObservedRow], bool]) -> Iterator[bytes]:
        """All lines, but of observed rows those that stay alone."""
        with self.path.open("rb") as file:
            while file.tell() < self._read.end:
                line = file.readline()
                event = parsed(line)
                assert event is not None  # _refresh read it
                if event["kind"] != OBSERVED:
                    yield line
                    continue
                rows = [row for row in event["rows"] if stays(row)]
                if len(rows) == len(event["rows"]):
                    yield line
                elif rows:
                    yield encoded({**event, **observed_content(rows)})

    def _write(self, contents: Iterable[Event]) -> None:
        """Behind what others wrote; whatever of it is observed is not noted here."""
        read, new = self._refresh(), []
        contents = iter(contents)
        begun = next(contents, None)
        first_ones = [] if begun is None else [begun]
        if not read.n_lines and (begun is None or begun["kind"] != LOG):
            first_ones.insert(0, _header())
        end, last, ending, n_lines = read.end, read.last, read.ending, read.n_lines

        def lines() -> Iterator[bytes]:
            nonlocal last, ending, n_lines
            for event in _numbered(chain(first_ones, contents), read.last + 1):
                if event["kind"] != OBSERVED:
                    new.append(event)
                line = encoded(event)
                last, ending, n_lines = event["n"], line[-_ENDING:], n_lines + 1
                yield line

        try:
            handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
            try:
                end = _append_at(handle, read.end, lines())
            finally:
                os.close(handle)
            if not read.n_lines:
                sync(self.path.parent)
        except OSError as error:
            raise DataError(f"{self.path} could not be written ({write_problem(error)}); nothing was changed.") from error
        read.events += new
        read.end, read.last, read.ending, read.n_lines = end, last, ending, n_lines

    def _refresh(self) -> _Read:
        try:
            with self.path.open("rb") as file:
                file.seek(self._read.end - len(self._read.ending))
                if file.read(len(self._read.ending)) != self._read.ending:  # written anew, when a user was forgotten
                    self._read = _Read()
                    file.seek(0)
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    self._note(line)
        except FileNotFoundError:
            self._read = _Read()
        except OSError as error:
            raise DataError(f"{self.path} could not be read ({error.strerror}).") from error
        return self._read

    def _note(self, text: bytes) -> None:
        read, event = self._read, parsed(text)
        if event is None or (event["kind"] == LOG) != (read.n_lines == 0) or event["n"] <= read.last:
            raise DataError(f"{self.path} is damaged in line {read.n_lines + 1}; restore the file, or take that line out.")
        if event["kind"] == OBSERVED:
            read.observed += event["rows"]
        else:
            read.events.append(event)
        read.last, read.n_lines = event["n"], read.n_lines + 1
        read.ending, read.end = text[-_ENDING:], read.end + len(text)


def last_number(events: Sequence[Event]) -> int:
    return int(events[-1]["n"]) if events else -1


def marks_of(events: Iterable[Event]) -> dict[str, str]:
    """By item: was it marked sold or back last?"""
    return {item: event["kind"] for event in events if event["kind"] in (SOLD, BACK) for item in event["items"]}


def forgetting_of(events: Sequence[Event]) -> list[Event]:
    """What another log takes over, so that nobody who was forgotten comes back there."""
    kept = [event for event in events if event["kind"] in (LOG, FORGOT)]
    return [{name: value for name, value in event.items() if name not in ("n", "at")} for event in kept]


def forgetting(events: Sequence[Event], user: str) -> tuple[Event, ...]:
    """Events of no file, with one more user who was forgotten: for a run that has no folder."""
    events = events or list(_numbered([_header()], 0))
    forgot = {"kind": FORGOT, "user": hash_of(events[0]["salt"], user)}
    return (*events, *_numbered([forgot], len(events)))


def forgotten_users(events: Sequence[Event], ids: Iterable[str], since: int = -1) -> list[str]:
    """Which of these users were forgotten, by the events after number `since`."""
    hashes = {event["user"] for event in events if event["kind"] == FORGOT and event["n"] > since}
    return [user for user in ids if hash_of(events[0]["salt"], user) in hashes] if hashes else []


def _header() -> Event:
    return {"kind": LOG, "salt": secrets.token_hex(16)}


def _numbered(contents: Iterable[Event], start: int) -> Iterator[Event]:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    for place, content in enumerate(contents):
        yield {"n": start + place, **content, "at": now}


def _append_at(handle: int, end: int, lines: Iterator[bytes]) -> int:
    """At that place, cutting off what stands behind it; a write that fails leaves the file as it was. Returns its new end."""
    if os.fstat(handle).st_size != end:
        os.ftruncate(handle, end)
    place = end
    try:
        for block in _blocks(lines):
            done = 0
            while done < len(block):
                done += os.pwrite(handle, block[done:], place + done)
            place += done
        os.fsync(handle)
    except BaseException:
        os.ftruncate(handle, end)
        raise
    return place


def _blocks(lines: Iterator[bytes]) -> Iterator[bytes]:
    """Lines together, so that a million rows are not held as text at once."""
    block: list[bytes] = []
    size = 0
    for line in lines:
        block.append(line)
        size += len(line)
        if size >= _BLOCK:
            yield b"".join(block)
            block, size = [], 0
    if block:
        yield b"".join(block)
