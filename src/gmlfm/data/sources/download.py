"""Downloads files: with progress, resumed after an interruption, checked, and put in place only when complete."""

from __future__ import annotations

import hashlib
import http.client
import os
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from gmlfm.errors import DataError

Progress = Callable[[int, int | None], None]
_BLOCK = 1 << 18
_TRIES = 4


def download_file(
    url: str, target: Path, md5: str | None = None, progress: Progress | None = None, timeout: float = 30.0
) -> None:
    """Download `url` to `target`. What an interrupted try left in `target`.part is continued, not thrown away."""
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(target.name + ".part")
    for attempt in range(_TRIES):
        try:
            _continue(url, partial, progress, timeout)
            break
        except urllib.error.HTTPError as error:
            if error.code == 416 and partial.exists():
                break  # it is already as long as the file: the checksum decides
            raise DataError(
                f"{url} cannot be had: the server answered {error.code} {error.reason}; use --from FILE."
            ) from error
        except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
            if attempt == _TRIES - 1:
                reason = getattr(error, "reason", None) or error
                raise DataError(
                    f"{url} could not be fetched ({reason}); {_size(partial):,} bytes are kept, "
                    "and the same command goes on from there."
                ) from error
            time.sleep(0.1 * 4**attempt)
        except OSError as error:
            raise DataError(
                f"{partial} could not be written ({error.strerror or error}); what was there before is unchanged."
            ) from error
    if md5 is not None:
        actual = checksum(partial)
        if actual != md5:
            partial.unlink()
            raise DataError(f"{url} has the checksum {actual}, expected {md5}; the download was thrown away, try again.")
    os.replace(partial, target)


def _continue(url: str, partial: Path, progress: Progress | None, timeout: float) -> None:
    start = _size(partial)
    request = urllib.request.Request(url, headers={"User-Agent": "gmlfm", **({"Range": f"bytes={start}-"} if start else {})})
    with urllib.request.urlopen(request, timeout=timeout) as response:
        if start and response.status != 206:
            start = 0  # the server ignores the range and sends the file from its beginning
        length = response.headers.get("Content-Length")
        total = start + int(length) if length is not None else None
        check_room(total - start if total else 0, partial.parent, url)
        with partial.open("ab" if start else "wb") as file:
            n_received = start
            while block := response.read(_BLOCK):
                file.write(block)
                n_received += len(block)
                if progress:
                    progress(n_received, total)
        if total is not None and n_received < total:
            raise http.client.IncompleteRead(b"", total - n_received)


def check_room(n_bytes: int, folder: Path, subject: object) -> None:
    """Refuse before anything is written when the disk cannot hold it."""
    free = shutil.disk_usage(folder).free
    if n_bytes > free:
        raise DataError(
            f"{subject} needs {n_bytes / 2**30:,.1f} GiB, but {folder} has {free / 2**30:,.1f} GiB free; "
            "make room or choose another place."
        )


def checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
