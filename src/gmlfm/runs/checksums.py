"""Checksums of a generation's files, and of run.json itself."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from gmlfm.errors import DataError
from gmlfm.storage import sha256_of, sync

CHECK = "check"


def checksums(folder: Path) -> dict[str, str]:
    """By relative path; every file is on the disk when this returns."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    for path in (*paths, *(path for path in folder.rglob("*") if path.is_dir()), folder):
        sync(path)
    return {path.relative_to(folder).as_posix(): sha256_of(path) for path in paths}


def verify(folder: Path, expected: dict[str, str]) -> None:
    """Refuse a file that is missing or is not the one that was written."""
    for name, checksum in expected.items():
        try:
            actual = sha256_of(folder / name)
        except OSError as error:
            raise DataError(f"{folder / name} is missing or cannot be read ({error.strerror}); train again.") from error
        if actual != checksum:
            raise DataError(f"{folder / name} is damaged, or not the file of this run (its checksum differs); train again.")


def sealed(about: dict[str, Any]) -> dict[str, Any]:
    """With a checksum of its own."""
    return {**about, CHECK: seal_of(about)}


def seal_of(about: dict[str, Any]) -> str:
    content = json.dumps({name: value for name, value in about.items() if name != CHECK}, sort_keys=True)
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()
