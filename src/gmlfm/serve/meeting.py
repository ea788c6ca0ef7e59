"""Where the workers of one service meet: who wants all to reload writes it down there, and each looks now and then."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from gmlfm.storage import write_text

_CALL = "reload"


def call_for_reload(meeting: Path) -> None:
    write_text(meeting / _CALL, secrets.token_hex(8))


def reload_call(meeting: Path | None) -> tuple[int, int] | None:
    """Another one after every call; None before the first."""
    if meeting is None:
        return None
    try:
        status = os.stat(meeting / _CALL)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns
