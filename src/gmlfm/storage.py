"""Writing that never leaves half a file: content goes to a temporary neighbour and is renamed when complete.
And where the cache is, and how much memory is free."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import platformdirs
import psutil

from gmlfm.errors import DataError


def write_text(path: Path, text: str) -> None:
    """Write a text file completely or not at all."""
    with _reporting_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(temporary, 0o666 & ~_umask())
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise


@contextmanager
def new_folder(path: Path, holds: tuple[str, ...] = ()) -> Iterator[Path]:
    """A temporary folder that takes the place of `path` when the block ends well; otherwise `path` stays as it was.

    holds: the names that it will hold. A folder with anything else in it belongs to the user and is never replaced.
    """
    _refuse_foreign_files(path, holds)
    with _reporting_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
        os.chmod(temporary, 0o777 & ~_umask())
        old = temporary.with_name(temporary.name + ".old")
        try:
            yield temporary
            if path.exists():
                os.replace(path, old)
            try:
                os.replace(temporary, path)
            except OSError:
                if old.exists():
                    os.replace(old, path)
                raise
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
            shutil.rmtree(old, ignore_errors=True)


def _refuse_foreign_files(path: Path, holds: tuple[str, ...]) -> None:
    if path.is_file():
        raise DataError(f"{path} is a file; a folder is to be written there, choose another place.")
    foreign = sorted({entry.name for entry in path.iterdir()} - set(holds)) if path.is_dir() else []
    if foreign:
        raise DataError(f"{path} holds '{foreign[0]}', which would be lost; choose a new folder, or empty this one.")


@contextmanager
def _reporting_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise DataError(f"{path} could not be written ({reason}); what was there before is unchanged.") from error


def free_memory() -> int:
    """Bytes of memory that can be had without swapping."""
    return int(psutil.virtual_memory().available)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def cache_folder() -> Path:
    """The platform's folder for data that can be had again: ~/.cache/gmlfm on Linux."""
    return platformdirs.user_cache_path("gmlfm", appauthor=False, opinion=False)
