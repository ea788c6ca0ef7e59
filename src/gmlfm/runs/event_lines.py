"""A line of the event log: how an event is written, and what is taken for one.

    {"n": 3, "kind": "sold", "items": ["i3"], "at": "2026-01-31T12:00:00Z", "check": "..."}

Kinds: log (the first line, with a random salt), sold, back, forgot (the salted hash of a user's id, never the id), and
observed: rows of what users did, each [user, item, time or null] and perhaps the kind of event.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from typing import Any

Event = dict[str, Any]
Time = int | float
# user, item, time on the scale of the data's times, kind of event; ids are texts
ObservedRow = tuple[str, str, Time | None, str | None]
SOLD, BACK, FORGOT, LOG, OBSERVED = "sold", "back", "forgot", "log", "observed"
_CONTENT: dict[str, tuple[str, type]] = {
    LOG: ("salt", str),
    SOLD: ("items", list),
    BACK: ("items", list),
    FORGOT: ("user", str),
    OBSERVED: ("rows", list),
}
_LARGEST = 2**63  # beyond it a whole number is no time


def encoded(event: Event) -> bytes:
    return (json.dumps({**event, "check": _check(event)}) + "\n").encode()


def parsed(text: bytes) -> Event | None:
    """None where it is no event, or not the one that was written. Rows of an observed one are tuples of four."""
    try:
        event = json.loads(text)
        check = event.pop("check")
        name, kind = _CONTENT[event["kind"]]
        is_whole = check == _check(event) and isinstance(event[name], kind) and isinstance(event["n"], int)
        if event["kind"] == LOG:
            bytes.fromhex(event["salt"])
        if event["kind"] == OBSERVED:
            event["rows"] = [_row(*values) for values in event["rows"]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return event if is_whole else None


def observed_content(rows: list[ObservedRow]) -> Event:
    """Rows as they are written: without a kind of event where there is none."""
    return {"kind": OBSERVED, "rows": [row if row[3] is not None else row[:3] for row in rows]}


def hash_of(salt: str, user: str) -> str:
    return hashlib.blake2b(user.encode("utf-8", "surrogatepass"), key=bytes.fromhex(salt), digest_size=16).hexdigest()


def _row(user: Any, item: Any, time: Any, event: Any = None) -> ObservedRow:
    is_right = isinstance(user, str) and isinstance(item, str) and (event is None or isinstance(event, str))
    if not is_right or not (time is None or is_time(time)):
        raise ValueError("no observed row")
    # Users and items come again and again: each is held once.
    return sys.intern(user), sys.intern(item), time, event and sys.intern(event)


def is_time(value: Any) -> bool:
    """Whether a line of the log can have it."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and -_LARGEST <= value < _LARGEST and math.isfinite(value)


def _check(event: Event) -> str:
    return hashlib.sha256(json.dumps(event, sort_keys=True).encode()).hexdigest()[:16]
