"""Files of bytes: regular ones, pipes, packed ones and members of archives, each with its limit (see `reading`)."""

from __future__ import annotations

import io
import os
import select
import stat
import time
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any

from gmlfm.errors import DataError
from gmlfm.reading import check_regular, existing, kind_of, limit, most_bytes, reading, too_large

ARCHIVE_MARK = "!"  # as in "ml-1m.zip!ml-1m/ratings.dat"
_RATIO_ASKED_FROM = 1 << 26
_BLOCK = 1 << 20
_GZIP = 31  # zlib's word for gzip's header and checksum
_LONGEST_WAIT = 60.0  # seconds between two looks at the clock


def open_bytes(path: str | Path, *, whole: bool = False) -> IO[bytes]:
    """A regular file, a pipe (with a time limit), a .gz file unpacked, or the member of a zip archive (a.zip!member).

    whole: all of it is going to be held in memory, and what cannot be is refused.
    """
    archive, mark, member = str(path).partition(f".zip{ARCHIVE_MARK}")
    if mark:
        return _open_member(f"{archive}.zip", member, whole)
    status = existing(path)
    is_regular, is_packed = stat.S_ISREG(status.st_mode), str(path).lower().endswith(".gz")
    if not is_regular and not stat.S_ISFIFO(status.st_mode):
        raise DataError(f"{path} is {kind_of(status)}; expected a file.")
    if is_regular and whole and not is_packed and status.st_size > most_bytes(whole):
        raise too_large(str(path), status.st_size, whole)
    raw: io.RawIOBase = io.FileIO(path) if is_regular else _Pipe(path)
    content = _Unpacked(raw) if is_packed else raw
    return io.BufferedReader(content if is_regular and not is_packed else _Limited(content, str(path), whole), _BLOCK)


def read_bytes(path: str | Path) -> bytes:
    """The whole content of a file, a pipe, a .gz file, or a zip archive's member."""
    with reading(path), open_bytes(path, whole=True) as file:
        return file.read()


def read_text(path: str | Path, most_bytes: int) -> str:
    """A small text file in UTF-8, with or without a byte-order mark. Raises READ_ERRORS and DataError."""
    with open_bytes(path) as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise DataError(f"{path} is longer than {most_bytes >> 20} MiB; is it the file that was meant?")
    return content.decode("utf-8-sig")


def _open_member(archive: str, member: str, whole: bool) -> IO[bytes]:
    check_regular(archive)
    opened = zipfile.ZipFile(archive)
    try:
        if member not in opened.namelist():
            raise DataError(f"{archive} has no member '{member}'; it holds {', '.join(opened.namelist()[:10])}.")
        entry = opened.getinfo(member)
        path = f"{archive}{ARCHIVE_MARK}{member}"
        if entry.file_size > most_bytes(whole):
            raise too_large(path, entry.file_size, whole)
        _check_ratio(path, entry.file_size, entry.compress_size)
        return opened.open(entry)
    finally:
        opened.close()  # the member keeps the file open as long as it is read


def _check_ratio(path: str, n_bytes: int, n_packed: int) -> None:
    most = limit("GMLFM_READ_RATIO", 200)
    if n_bytes > _RATIO_ASKED_FROM and n_bytes > most * max(n_packed, 1):
        raise DataError(
            f"{path} unpacks to more than {most:g} times its size, as only a bomb does; "
            "if it is what it should be, allow more with GMLFM_READ_RATIO."
        )


class _Unpacked(io.RawIOBase):
    """A .gz file, member after member, with its checksums verified. n_packed: how much has been taken of it."""

    def __init__(self, packed: io.RawIOBase) -> None:
        self._packed, self._rest, self.n_packed = packed, b"", 0
        self._decoder: Any = None
        self._at_start = True

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while True:
            is_end = not self._rest and not self._fill()
            if self._decoder is None:
                # Some writers fill the last block with zeros.
                self._rest = self._rest if self._at_start else self._rest.lstrip(b"\0")
                if is_end:
                    return 0
                if not self._rest:
                    continue
                self._decoder, self._at_start = zlib.decompressobj(wbits=_GZIP), False
            block = self._decoder.decompress(self._rest, len(buffer))
            self._rest = self._decoder.unconsumed_tail
            if self._decoder.eof:
                self._rest, self._decoder = self._decoder.unused_data, None
            elif is_end and not block:
                raise EOFError
            if block:
                buffer[: len(block)] = block
                return len(block)

    def _fill(self) -> bool:
        self._rest = self._packed.read(_BLOCK >> 2) or b""
        self.n_packed += len(self._rest)
        return bool(self._rest)

    def close(self) -> None:
        self._packed.close()
        super().close()


class _Limited(io.RawIOBase):
    """Refuses to go on where more comes than is allowed."""

    def __init__(self, content: io.RawIOBase, path: str, whole: bool) -> None:
        self._content, self._path, self._whole = content, path, whole
        self._most, self._n_bytes = most_bytes(whole), 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        n_read = self._content.readinto(buffer) or 0
        self._n_bytes += n_read
        if self._n_bytes > self._most:
            raise too_large(self._path, self._n_bytes, self._whole)
        if isinstance(self._content, _Unpacked):
            _check_ratio(self._path, self._n_bytes, self._content.n_packed)
        return n_read

    def readall(self) -> bytes:
        return b"".join(iter(lambda: self.read(_BLOCK) or b"", b""))

    def close(self) -> None:
        self._content.close()
        super().close()


class _Pipe(io.RawIOBase):
    """A named pipe that is opened without waiting for its writer, and read until its end or the time limit."""

    def __init__(self, path: str | Path) -> None:
        self._path, self._seconds = path, limit("GMLFM_READ_SECONDS", 600)
        self._end = time.monotonic() + self._seconds
        self._handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._handle, select.POLLIN)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while True:
            left = self._end - time.monotonic()
            if left <= 0:
                raise DataError(
                    f"{self._path} is a pipe that has not ended within {self._seconds:g} seconds; "
                    "allow more with GMLFM_READ_SECONDS, or save what it gives in a file."
                )
            # Before a first writer comes there is no event; where all have gone, there is one, and reading gives the end.
            if self._poll.poll(min(left, _LONGEST_WAIT) * 1000):
                try:
                    return os.readv(self._handle, [buffer])
                except BlockingIOError:
                    continue

    def close(self) -> None:
        if not self.closed:
            os.close(self._handle)
        super().close()
