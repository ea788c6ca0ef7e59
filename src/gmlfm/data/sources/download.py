"""Downloads files: with progress, resumed after an interruption, within limits of time and size, checked, and put in place
only when complete. Environment variables raise the limits:

    GMLFM_DOWNLOAD_SECONDS   most seconds for the whole transfer, all tries together (default: 600)
    GMLFM_DOWNLOAD_BYTES     most bytes (default: a tenth more than the source declares; 4 GiB where it declares nothing)
"""

from __future__ import annotations

import hashlib
import http.client
import os
import shutil
import time
import urllib.error
from collections.abc import Callable
from io import RawIOBase
from pathlib import Path

from gmlfm.data.sources.transfer import Deadline, content_length, range_total, requested
from gmlfm.errors import DataError
from gmlfm.reading import limit, reading
from gmlfm.storage import refuse_special_file, reporting_write_errors, sync

Progress = Callable[[int, int | None], None]
_BLOCK = 1 << 18
_TRIES = 4
_SECONDS = 600.0
_MOST_BYTES = 1 << 32


def download_file(
    url: str,
    target: Path,
    md5: str | None = None,
    progress: Progress | None = None,
    timeout: float = 30.0,
    declared_bytes: int | None = None,
) -> None:
    """Download `url` to `target`. What an interrupted try left in `target`.part is continued, not thrown away.

    timeout: seconds without a byte after which a try ends. declared_bytes: how long the file should be, about.
    """
    most = int(limit("GMLFM_DOWNLOAD_BYTES", _MOST_BYTES if declared_bytes is None else 1.1 * declared_bytes))
    partial = target.with_name(target.name + ".part")
    for path in (target, partial):
        refuse_special_file(path)
    with reporting_write_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    with Deadline(limit("GMLFM_DOWNLOAD_SECONDS", _SECONDS)) as deadline:
        for attempt in range(_TRIES):
            if _complete(url, partial, progress, timeout, deadline, most, is_last=attempt == _TRIES - 1):
                break
            time.sleep(0.1 * 4**attempt)
    if md5 is not None:
        actual = checksum(partial)
        if actual != md5:
            partial.unlink()
            raise DataError(f"{url} has the checksum {actual}, expected {md5}; the download was thrown away, try again.")
    with reporting_write_errors(target):
        sync(partial)
        os.replace(partial, target)


def _complete(
    url: str, partial: Path, progress: Progress | None, timeout: float, deadline: Deadline, most: int, is_last: bool
) -> bool:
    """One try; False where another may bring the rest."""
    try:
        _continue(url, partial, progress, timeout, deadline, most)
        return True
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 416 and partial.exists():
                if range_total(error.headers) in (None, _size(partial)):
                    return True  # it is already as long as the file: the checksum decides
                partial.unlink()  # it is of another file
                if not is_last:
                    return False
            said = str(error.reason).split("\n")[0]  # of a loop of redirects urllib says three lines
        raise DataError(f"{url} cannot be had: the server answered {error.code} {said}; use --from FILE.") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        # Writing has its own sentence, so an OSError is the network's; ValueError: an address that cannot be one.
        if deadline.left <= 0:
            raise DataError(
                f"{url} was not complete after {deadline.seconds:g} seconds; {_size(partial):,} bytes are kept, and the same "
                "command goes on from there (GMLFM_DOWNLOAD_SECONDS allows more)."
            ) from error
        if is_last:
            reason = getattr(error, "reason", None) or str(error) or type(error).__name__
            raise DataError(
                f"{url} could not be fetched ({reason}); {_size(partial):,} bytes are kept, "
                "and the same command goes on from there."
            ) from error
        return False


def _continue(url: str, partial: Path, progress: Progress | None, timeout: float, deadline: Deadline, most: int) -> None:
    start = _size(partial)
    if start > most:
        partial.unlink()  # whatever it is, it is not the file
        start = 0
    with requested(url, start, deadline, timeout) as response:
        if response.status == 200:
            start = 0  # the server ignores the range and sends the file from its beginning
        length = content_length(response.headers, url)
        total = start + length if length is not None else None
        if total is not None and total > most:
            raise _too_long(url, most)
        check_room(length or 0, partial.parent, url)
        with reporting_write_errors(partial):
            file = partial.open("ab" if start else "wb", buffering=0)  # so that closing it has nothing left to write
        with file:
            n_received = start
            while block := response.read1(_BLOCK):
                n_received += len(block)
                if n_received > most:
                    partial.unlink()
                    raise _too_long(url, most)
                _append(file, block, partial)
                if progress:
                    progress(n_received, total)
    if deadline.left <= 0 or (total is not None and n_received < total):
        raise http.client.IncompleteRead(b"", (total or n_received) - n_received)


def _append(file: RawIOBase, block: bytes, partial: Path) -> None:
    rest = memoryview(block)
    with reporting_write_errors(partial):
        while rest:
            rest = rest[file.write(rest) :]


def _too_long(url: str, most: int) -> DataError:
    return DataError(
        f"{url} sends more than the {most:,} bytes that are allowed; it was stopped and thrown away "
        "(GMLFM_DOWNLOAD_BYTES allows more)."
    )


def check_room(n_bytes: int, folder: Path, subject: object) -> None:
    """Refuse before anything is written when the disk cannot hold it."""
    free = shutil.disk_usage(folder).free
    if n_bytes > free:
        raise DataError(
            f"{subject} needs {n_bytes / 2**30:,.1f} GiB, but {folder} has {free / 2**30:,.1f} GiB free; "
            "make room or choose another place."
        )


def checksum(path: Path) -> str:
    with reading(path), path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
