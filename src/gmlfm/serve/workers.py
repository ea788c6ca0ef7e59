"""What the workers of one service tell each other, by files in a folder that they share: that all are to reload."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from gmlfm.storage import write_text

_REQUEST = "reload"
ReloadRequest = tuple[int, int] | None


def ask_for_reload(shared_folder: Path) -> None:
    write_text(shared_folder / _REQUEST, secrets.token_hex(8))


def reload_request(shared_folder: Path | None) -> ReloadRequest:
    """Another one after every call; None before the first."""
    if shared_folder is None:
        return None
    try:
        status = os.stat(shared_folder / _REQUEST)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns
