"""One process at a time in a folder. The system takes the lock back from a process that dies."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from gmlfm.errors import DataError
from gmlfm.storage import refuse_unreadable_name

_SIGNATURE = 512  # bytes, unless a command is very long
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.001, 0.05  # who writes a line of the log is done within milliseconds


class LockedError(DataError):
    """Another process writes here."""


@contextmanager
def locked(folder: Path, name: str, seconds: float, what: str) -> Iterator[None]:
    """Holds the folder's lock of this name; whoever has it for so many seconds more is named in the refusal."""
    refuse_unreadable_name(folder)
    deadline, pause = time.monotonic() + seconds, _SHORTEST_PAUSE
    while True:
        handle = _open(folder, name)
        try:
            if _taken(folder / name, handle):
                _sign(handle)
                try:
                    yield
                finally:
                    fcntl.flock(handle, fcntl.LOCK_UN)  # by name: a forked child may hold the same handle
                return
            if time.monotonic() >= deadline:
                raise LockedError(f"{folder} {what} by {_holder(handle)}; try again when it is done.")
        finally:
            os.close(handle)
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


def _open(folder: Path, name: str) -> int:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise DataError(f"{folder} could not be written ({error.strerror}); nothing was changed.") from error


def _taken(path: Path, handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise DataError(f"{path} cannot be locked ({error.strerror}); choose a place where files can be.") from error
    # Its last holder may have removed the file with the folder: a lock on a file without a name keeps nobody out.
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


def _sign(handle: int) -> None:
    command = " ".join([Path(sys.argv[0]).name, *sys.argv[1:2]]).strip() or "python"
    since = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    signature = {"process": os.getpid(), "host": socket.gethostname(), "command": command, "since": since}
    # Filled up with blanks: shortening a file each time costs as much as making a write durable.
    text = json.dumps(signature).encode().ljust(_SIGNATURE)
    try:
        if os.fstat(handle).st_size > len(text):
            os.ftruncate(handle, 0)
        os.pwrite(handle, text, 0)
    except OSError:  # a full disk keeps no name, and the lock holds without it
        pass


def _holder(handle: int) -> str:
    try:
        holder = json.loads(os.pread(handle, 4096, 0))
        return f"process {holder['process']} on {holder['host']} ({holder['command']}, since {holder['since']})"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
