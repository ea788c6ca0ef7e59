"""Writing that never leaves half a file: content goes to a temporary neighbour and is renamed when complete.
And where the cache is, and how much memory is free."""

from __future__ import annotations

import grp
import hashlib
import os
import pwd
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import platformdirs
import polars as pl
import psutil
from safetensors import SafetensorError

from gmlfm.errors import DataError

# What writing raises where a disk is full, read-only or gone: polars and safetensors have errors of their own.
WRITE_ERRORS = (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException, SafetensorError)


def write_text(path: Path, text: str) -> None:
    """Write a text file completely or not at all."""
    with new_file(path) as draft:
        draft.write_text(text, encoding="utf-8", newline="\n")


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """A temporary neighbour, to be written in the block, that takes the place of `path` when the block ends well; it is on the
    disk by then. Otherwise `path` stays as it was."""
    refuse_special_file(path)
    refuse_unreadable_name(path)
    with reporting_write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}.")
        os.close(handle)
        draft = Path(name)
        try:
            yield draft
            sync(draft)
            os.chmod(draft, 0o666 & ~_umask())
            os.replace(draft, path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        sync(path.parent)


@contextmanager
def new_folder(path: Path, holds: tuple[str, ...] = ()) -> Iterator[Path]:
    """A temporary folder that takes the place of `path` when the block ends well; otherwise `path` stays as it was.

    holds: the names that it will hold. A folder with anything else in it belongs to the user and is never replaced.
    """
    refuse_unreadable_name(path)
    with reporting_write_errors(path):
        _refuse_foreign_files(path, holds)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name[:100]}."))
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


def refuse_special_file(path: Path) -> None:
    """A file is written to a new name or in place of a regular file: a link, a device or a folder is never replaced."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return  # a new name; or one that cannot be written, which writing will tell
    except ValueError as error:
        raise DataError(f"{str(path)!r} cannot be a file's name ({error}).") from error
    if not stat.S_ISREG(mode):
        kind = "a symbolic link" if stat.S_ISLNK(mode) else "a folder" if stat.S_ISDIR(mode) else "a device or pipe"
        raise DataError(f"{path} is {kind} and would be replaced; give the name of a file, or a new one.")


def _refuse_foreign_files(path: Path, holds: tuple[str, ...]) -> None:
    if path.is_symlink():
        raise DataError(f"{path} is a symbolic link and would be replaced; give the name of a folder, or a new one.")
    if path.exists() and not path.is_dir():
        raise DataError(f"{path} is a file; a folder is to be written there, choose another place.")
    foreign = sorted({entry.name for entry in path.iterdir()} - set(holds)) if path.is_dir() else []
    if foreign:
        raise DataError(f"{path} holds '{foreign[0]}', which would be lost; choose a new folder, or empty this one.")


def refuse_unreadable_name(path: Path) -> None:
    """A name that is no text, as a shell makes of bytes that are no UTF-8, cannot be given to whoever writes tables."""
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise DataError(f"{path} is no name that can be written (it is not UTF-8); choose another one.") from error


@contextmanager
def reporting_write_errors(path: Path) -> Iterator[None]:
    """Turns what a failed write raises into one sentence."""
    try:
        yield
    except WRITE_ERRORS as error:
        raise DataError(f"{path} could not be written ({write_problem(error)}); what was there before is unchanged.") from error


def write_problem(error: BaseException) -> str:
    """Why a write failed, in the system's words, on one line."""
    return " ".join((getattr(error, "strerror", None) or str(error)).split())


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def free_memory() -> int:
    """Bytes of memory that can be had without swapping."""
    return int(psutil.virtual_memory().available)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def cache_folder() -> Path:
    """The platform's folder for data that can be had again: ~/.cache/gmlfm on Linux; without a home, one in the folder for
    temporary files."""
    # Without a home (no HOME, a user that the system does not know) platformdirs raises, or leaves the `~` as it is.
    with suppress(RuntimeError):
        folder = platformdirs.user_cache_path("gmlfm", appauthor=False, opinion=False)
        if folder.is_absolute():
            return folder
    return Path(tempfile.gettempdir()) / f"gmlfm-{os.getuid()}"


def is_private(folder: Path) -> bool:
    """Whether nobody but this user, and root, can put anything into a folder, or another folder in its place."""
    own = os.lstat(folder)
    if not stat.S_ISDIR(own.st_mode) or own.st_uid != os.geteuid() or _is_open(own):
        return False
    for parent in map(os.stat, folder.resolve().parents):
        if parent.st_uid not in (0, os.geteuid()) or (_is_open(parent) and not parent.st_mode & stat.S_ISVTX):
            return False
    return True


def _is_open(folder: os.stat_result) -> bool:
    """Whether others may write there. A group that is the user's alone, which many systems make, is no others."""
    is_own_group = folder.st_gid == os.getegid() and _is_named_like_user(folder.st_gid)
    return bool(folder.st_mode & stat.S_IWOTH) or (bool(folder.st_mode & stat.S_IWGRP) and not is_own_group)


def _is_named_like_user(group: int) -> bool:
    try:
        return grp.getgrgid(group).gr_name == pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return False


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
