from __future__ import annotations

import gzip
import io
import os
import socket
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gmlfm import reading, streams
from gmlfm.errors import DataError
from gmlfm.streams import open_bytes, read_bytes, read_text

TEXT = b"id,a\n" + b"".join(b"%d,%d\n" % (n, n * 7 % 10) for n in range(2_000))


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "pipe.csv")
    return tmp_path / "pipe.csv"


@pytest.fixture
def writing() -> Callable[[Path, bytes], None]:
    """Writes to a pipe from another thread; it ends with its reader."""

    def write(path: Path, content: bytes) -> None:
        def run() -> None:
            try:
                with path.open("wb") as file:
                    file.write(content)
            except BrokenPipeError:
                pass

        threading.Thread(target=run, daemon=True).start()

    return write


@given(st.lists(st.binary(max_size=60), max_size=4), st.integers(0, 3), st.integers(1, 50), st.integers(1, 50))
def test_unpacked_it_is_what_gzip_unpacks(members: list[bytes], padding: int, block: int, size: int) -> None:
    class Small(io.BytesIO):
        def read(self, n: int | None = -1) -> bytes:
            return super().read(min(n or block, block))

    packed = b"".join(gzip.compress(member, mtime=0) for member in members) + (b"\0" * padding if members else b"")
    unpacked = streams._Unpacked(Small(packed))  # type: ignore[arg-type]
    content = b"".join(iter(lambda: unpacked.read(size) or b"", b""))
    assert content == b"".join(members) == gzip.decompress(packed)


def test_files_pipes_packed_files_and_members_give_the_same(
    tmp_path: Path, pipe: Path, writing: Callable[[Path, bytes], None]
) -> None:
    (tmp_path / "t.csv").write_bytes(TEXT)
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(TEXT))
    with zipfile.ZipFile(tmp_path / "t.zip", "w") as archive:
        archive.writestr("in/t.csv", TEXT)
    for name in ("t.csv", "t.csv.gz", "t.zip!in/t.csv"):
        assert read_bytes(tmp_path / name) == TEXT
        with open_bytes(tmp_path / name) as file:
            assert file.readline() == b"id,a\n"
            assert file.read(3) == b"0,0"
    writing(pipe, TEXT)
    assert read_bytes(pipe) == TEXT
    os.mkfifo(tmp_path / "pipe.gz")
    writing(tmp_path / "pipe.gz", gzip.compress(TEXT))
    assert read_bytes(tmp_path / "pipe.gz") == TEXT


@pytest.mark.parametrize("kind", ["folder", "device", "socket"])
def test_what_is_no_file_is_refused(tmp_path: Path, kind: str) -> None:
    path = {"folder": tmp_path, "device": Path("/dev/zero"), "socket": tmp_path / "s"}[kind]
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        for read in (read_bytes, open_bytes):
            with pytest.raises(DataError, match=f"is a {kind}; expected a file"):
                read(path)
    link = tmp_path / "t.csv"
    link.symlink_to("/dev/zero")
    with pytest.raises(DataError, match="is a device; expected a file"):
        read_bytes(link)


@pytest.mark.parametrize("has_writer", [False, True])
def test_a_pipe_that_never_ends_is_left_after_the_time_allowed(
    pipe: Path, monkeypatch: pytest.MonkeyPatch, has_writer: bool
) -> None:
    monkeypatch.setenv("GMLFM_READ_SECONDS", "0.2")
    writer = os.open(pipe, os.O_RDWR) if has_writer else None
    try:
        if writer is not None:
            os.write(writer, b"id,a\n1,2\n")
        with pytest.raises(DataError, match=r"is a pipe that has not ended within 0\.2 seconds; .*GMLFM_READ_SECONDS"):
            read_bytes(pipe)
    finally:
        if writer is not None:
            os.close(writer)


@pytest.mark.parametrize("whole", [True, False])
def test_a_pipe_that_gives_more_than_is_allowed_is_left(
    pipe: Path, writing: Callable[[Path, bytes], None], monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    if whole:
        monkeypatch.setattr(reading, "free_memory", lambda: 1 << 20)
    else:
        monkeypatch.setenv("GMLFM_READ_BYTES", str(1 << 20))
    writing(pipe, bytes(4 << 20))
    with pytest.raises(DataError, match=r"bytes or more, and 1,048,576 are allowed; .*GMLFM_READ_BYTES"):
        with open_bytes(pipe, whole=whole) as file:
            file.read()


def bomb(path: Path) -> Path:
    """A hundred MiB of zeros: a thousand times the file's size."""
    content = bytes(100 << 20)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(content, 1))
        return path
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("t.csv", content)
    return path.with_name(path.name + "!t.csv")


@pytest.mark.parametrize("name", ["t.csv.gz", "t.zip"])
def test_bombs_are_refused_unless_more_is_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    path = bomb(tmp_path / name)
    with pytest.raises(DataError, match=r"unpacks to more than 200 times its size, .*GMLFM_READ_RATIO"):
        read_bytes(path)
    monkeypatch.setenv("GMLFM_READ_RATIO", "2000")
    assert len(read_bytes(path)) == 100 << 20
    monkeypatch.setattr(reading, "free_memory", lambda: 50 << 20)
    with pytest.raises(DataError, match=r"and 52,428,800 are allowed; read it in pieces with gmlfm data prepare, or"):
        read_bytes(path)
    with open_bytes(path) as file:  # in pieces it may be larger than memory
        assert sum(map(len, iter(lambda: file.read(1 << 20), b""))) == 100 << 20


def test_a_table_that_packs_well_is_no_bomb(tmp_path: Path) -> None:
    content = b"user,item,stars\n" + b"u1,i1,5\n" * 1_000_000
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(content))
    assert len(content) > 400 * (tmp_path / "t.csv.gz").stat().st_size
    assert read_bytes(tmp_path / "t.csv.gz") == content


def test_a_file_larger_than_memory_is_read_in_pieces_only(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    with path.open("wb") as file:
        file.truncate(1 << 42)  # 4 TiB of nothing
    with pytest.raises(DataError, match=r"gives 4,398,046,511,104 bytes or more, .* read it in pieces"):
        read_bytes(path)
    with open_bytes(path) as file:
        assert file.read(10) == bytes(10)


def test_a_small_text_is_small(tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_bytes("\ufeffname = 'Ō'".encode())
    assert read_text(tmp_path / "t.toml", 100) == "name = 'Ō'"
    with pytest.raises(DataError, match="is longer than 0 MiB; is it the file that was meant"):
        read_text(tmp_path / "t.toml", 5)


def test_damaged_packed_files_are_refused(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    packed = gzip.compress(TEXT, mtime=0)
    path = tmp_path / "t.gz"
    for place in range(0, len(packed), 40):
        path.write_bytes(packed[:place])
        if place:
            with pytest.raises(DataError, match="is truncated"):
                read_bytes(path)
        flipped = bytearray(packed)
        flipped[place] ^= int(rng.integers(1, 256))
        path.write_bytes(flipped)
        if place >= 10:  # the header names the time and the system, which nothing checks
            with pytest.raises(DataError, match=r"is truncated|is damaged"):
                read_bytes(path)
