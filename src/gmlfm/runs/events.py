"""What happened to a run since it was trained, in an append-only file beside its generations: a line an event, with a checksum.

    {"n": 3, "kind": "sold", "items": ["i3"], "at": "2026-01-31T12:00:00Z", "check": "..."}

Kinds: log (the first line, with a random salt), sold, back, forgot (the salted hash of a user's id, never the id).
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gmlfm.errors import DataError
from gmlfm.storage import sync, write_problem

Event = dict[str, Any]
SOLD, BACK, FORGOT, LOG = "sold", "back", "forgot", "log"
_CONTENT: dict[str, tuple[str, type]] = {
    LOG: ("salt", str),
    SOLD: ("items", list),
    BACK: ("items", list),
    FORGOT: ("user", str),
}


@dataclass
class _Read:
    """What was read of a file so far: its events, the last whole line and where it ends."""

    events: list[Event] = field(default_factory=list)
    last_line: bytes = b""
    end: int = 0


class EventLog:
    """Who appends or rewrites holds the writers' lock. Reading needs none: a line without its end does not count yet.

    Only what was added since the last reading is read again.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read = _Read()

    def events(self) -> list[Event]:
        """All of them; the list is the caller's."""
        return list(self._refresh().events)

    def append(self, *contents: Event) -> list[Event]:
        """All events, with these as the last; they are on the disk when this returns."""
        read = self._refresh()
        start = read.events[-1]["n"] + 1 if read.events else 0
        has_header = bool(read.events) or (bool(contents) and contents[0]["kind"] == LOG)
        new = _numbered(contents if has_header else [_header(), *contents], start)
        text = "".join(_encoded(event) for event in new).encode()
        try:
            handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
            try:
                _append_at(handle, read.end, text)
            finally:
                os.close(handle)
            if not read.events:
                sync(self.path.parent)
        except OSError as error:
            raise DataError(f"{self.path} could not be written ({write_problem(error)}); nothing was changed.") from error
        return self.events()

    def text_without(self, user: str) -> tuple[str, list[Event]]:
        """The file without the events of this user and with the hash of their id as the last, to be written in its place."""
        events = self._refresh().events or _numbered([_header()], 0)
        kept = [event for event in events if event["kind"] == FORGOT or event.get("user") != user]
        kept += _numbered([{"kind": FORGOT, "user": _hash_of(events[0]["salt"], user)}], events[-1]["n"] + 1)
        return "".join(_encoded(event) for event in kept), kept

    def _refresh(self) -> _Read:
        try:
            with self.path.open("rb") as file:
                file.seek(self._read.end - len(self._read.last_line))
                if file.read(len(self._read.last_line)) != self._read.last_line:  # written anew, when a user was forgotten
                    self._read = _Read()
                    file.seek(0)
                content = file.read()
        except FileNotFoundError:
            self._read = _Read()
            return self._read
        except OSError as error:
            raise DataError(f"{self.path} could not be read ({error.strerror}).") from error
        end = content.rfind(b"\n") + 1
        if end == 0:
            return self._read
        events, lines = list(self._read.events), content[:end].split(b"\n")[:-1]
        for line in lines:
            event = _parsed(line)
            number = len(events) + 1
            if event is None or (event["kind"] == LOG) != (number == 1) or (events and event["n"] <= events[-1]["n"]):
                raise DataError(f"{self.path} is damaged in line {number}; restore the file, or take that line out.")
            events.append(event)
        self._read = _Read(events, lines[-1] + b"\n", self._read.end + end)
        return self._read


def last_number(events: Sequence[Event]) -> int:
    return int(events[-1]["n"]) if events else -1


def marks_of(events: Iterable[Event]) -> dict[str, str]:
    """By item: was it marked sold or back last?"""
    return {item: event["kind"] for event in events if event["kind"] in (SOLD, BACK) for item in event["items"]}


def forgetting_of(events: Sequence[Event]) -> list[Event]:
    """What another log takes over, so that nobody who was forgotten comes back there."""
    kept = [event for event in events if event["kind"] in (LOG, FORGOT)]
    return [{name: value for name, value in event.items() if name not in ("n", "at")} for event in kept]


def forgotten_users(events: Sequence[Event], ids: Iterable[str], since: int = -1) -> list[str]:
    """Which of these users were forgotten, by the events after number `since`."""
    hashes = {event["user"] for event in events if event["kind"] == FORGOT and event["n"] > since}
    return [user for user in ids if _hash_of(events[0]["salt"], user) in hashes] if hashes else []


def _hash_of(salt: str, user: str) -> str:
    return hashlib.blake2b(user.encode("utf-8", "surrogatepass"), key=bytes.fromhex(salt), digest_size=16).hexdigest()


def _header() -> Event:
    return {"kind": LOG, "salt": secrets.token_hex(16)}


def _numbered(contents: Iterable[Event], start: int) -> list[Event]:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return [{"n": start + place, **content, "at": now} for place, content in enumerate(contents)]


def _encoded(event: Event) -> str:
    return json.dumps({**event, "check": _check(event)}) + "\n"


def _check(event: Event) -> str:
    return hashlib.sha256(json.dumps(event, sort_keys=True).encode()).hexdigest()[:16]


def _parsed(text: bytes) -> Event | None:
    """None where it is no event, or not the one that was written."""
    try:
        event = json.loads(text)
        check = event.pop("check")
        name, kind = _CONTENT[event["kind"]]
        is_whole = check == _check(event) and isinstance(event[name], kind) and isinstance(event["n"], int)
        if event["kind"] == LOG:
            bytes.fromhex(event["salt"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return event if is_whole else None


def _append_at(handle: int, end: int, text: bytes) -> None:
    """At that place, cutting off what stands behind it; a write that fails leaves the file as it was."""
    os.ftruncate(handle, end)
    try:
        done = 0
        while done < len(text):
            done += os.pwrite(handle, text[done:], end + done)
        os.fsync(handle)
    except OSError:
        os.ftruncate(handle, end)
        raise
