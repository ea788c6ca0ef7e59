"""Servers that send anything: a download ends with the file, or in one sentence, within its limits of time and size."""

from __future__ import annotations

import hashlib
import socket
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from unittest import mock

import pytest

from gmlfm.data.sources import download
from gmlfm.data.sources.download import download_file
from tests.data.sources.served import Reply, dripping, flooding, replying
from tests.fuzz.cases import DAMAGES, Case, check, damaged, generator, n_cases, named

CONTENT = bytes(range(256)) * 8
MD5 = hashlib.md5(CONTENT).hexdigest()
OK = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(CONTENT)
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNKS = b"".join(b"%x\r\n%b\r\n" % (512, CONTENT[start : start + 512]) for start in range(0, len(CONTENT), 512)) + b"0\r\n\r\n"
LIMITS = {"GMLFM_DOWNLOAD_SECONDS": "0.4", "GMLFM_DOWNLOAD_BYTES": "100000"}


def silent(connection: socket.socket, over: threading.Event) -> None:
    over.wait()


def resetting(connection: socket.socket, over: threading.Event) -> None:
    connection.sendall(OK + CONTENT[:700])
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


def redirect(location: str, status: int = 302) -> bytes:
    return f"HTTP/1.1 {status} Moved\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n".encode("latin-1")


def with_header(header: str) -> bytes:
    return f"HTTP/1.1 200 OK\r\n{header}\r\n\r\n".encode("latin-1") + CONTENT


REPLIES: dict[str, Reply] = {
    "the file": OK + CONTENT,
    "the file in chunks": CHUNKED + CHUNKS,
    "nothing": b"",
    "silence": silent,
    "a reset": resetting,
    "drips of a status": dripping(b"HTTP/1.1 20"),
    "drips of a header": dripping(b"HTTP/1.1 200 OK\r\nX-A: "),
    "drips of a body": dripping(OK),
    "drips without length": dripping(b"HTTP/1.1 200 OK\r\n\r\n"),
    "drips of a chunk": dripping(CHUNKED + b"fffff\r\n"),
    "drips of a redirect": dripping(b"HTTP/1.1 302 Found\r\nLocation: /b\r\n\r\n"),
    "a flood": flooding(b"HTTP/1.1 200 OK\r\n\r\n"),
    "a flood with a length": flooding(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n"),
    "a flood of headers": flooding(b"HTTP/1.1 200 OK\r\nX: "),
    "a flood in chunks": flooding(CHUNKED + b"ffffffff\r\n"),
    "a flood after a redirect": flooding(redirect("/b")),
    "a flood after an error": flooding(b"HTTP/1.1 404 Gone\r\n\r\n"),
    "a word as length": with_header("Content-Length: abc"),
    "a negative length": with_header("Content-Length: -1"),
    "a long length": with_header("Content-Length: " + "9" * 100),
    "a length too long": with_header("Content-Length: 5000"),
    "a length too short": with_header("Content-Length: 5"),
    "two lengths": with_header("Content-Length: 5\r\nContent-Length: 6"),
    "escapes in a length": with_header("Content-Length: \x1b[2J"),
    "an unknown encoding": with_header("Transfer-Encoding: nonsense"),
    "packed content": with_header("Content-Encoding: gzip"),
    "a range that nobody asked for": with_header("Content-Range: bytes 5-9/10"),
    "a part": b"HTTP/1.1 206 Partial\r\nContent-Range: bytes 5-9/10\r\nContent-Length: 5\r\n\r\nabcde",
    "a part of nonsense": b"HTTP/1.1 206 Partial\r\nContent-Range: abc\r\nContent-Length: 5\r\n\r\nabcde",
    "other bytes": OK + bytes(len(CONTENT)),
    "escapes as reason": b"HTTP/1.1 404 \x1b[31m\x07\r\n\r\n",
    "escapes as status": b"\x1b]0;x\x07\r\n\r\n",
    "status 0": b"HTTP/1.1 0 No\r\n\r\n",
    "status -1": b"HTTP/1.1 -1 No\r\n\r\n",
    "status 100 and nothing": b"HTTP/1.1 100 Continue\r\n\r\n",
    "status 101": b"HTTP/1.1 101 Switching\r\n\r\n",
    "status 204": b"HTTP/1.1 204 No Content\r\n\r\n",
    "status 401": b"HTTP/1.1 401 No\r\nWWW-Authenticate: nonsense\r\n\r\n",
    "status 407": b"HTTP/1.1 407 No\r\nProxy-Authenticate: Digest \x1b\r\n\r\n",
    "status 416": b"HTTP/1.1 416 No\r\nContent-Range: bytes */7\r\n\r\n",
    "status 999": b"HTTP/1.1 999 \xff\xfe\r\n\r\n",
    "HTTP/0.9": b"just text",
    "HTTP/7": b"HTTP/7.0 200 OK\r\n\r\n" + CONTENT,
    "a loop": redirect("/file.zip"),
    "a loop of 308": redirect("/file.zip", 308),
    "to a file": redirect("file:///etc/passwd"),
    "to ftp": redirect("ftp://127.0.0.1:9/x"),
    "to data": redirect("data:,x"),
    "to a port that is none": redirect("http://127.0.0.1:99999/"),
    "to half an address": redirect("http://[::1"),
    "to nobody": redirect("http://127.0.0.1:9/x"),
    "to a long name": redirect("http://" + "a" * 300 + "/"),
    "to dots": redirect("http://..../"),
    "to escapes": redirect("/\x1b[31m"),
    "to nowhere": redirect(""),
    "many headers": b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 5_000 + b"\r\n",
    "headers without end": b"HTTP/1.1 200 OK\r\nA: b\r\n",
    "a header without colon": b"HTTP/1.1 200 OK\r\nnonsense\r\n\r\n" + CONTENT,
    "nul in a header": with_header("Content-Length: \0"),
    "chunks of nonsense": CHUNKED + b"xyz\r\n",
    "negative chunks": CHUNKED + b"-5\r\nabc",
    "chunks without end": CHUNKED + CHUNKS[:700],
    "a long chunk": CHUNKED + b"f" * 200_000,
}


def received(folder: Path, replies: tuple[Reply, ...], part: bytes = b"") -> None:
    """A download from a server that answers so; `part`: what an earlier try left."""
    if part:
        (folder / "f.zip.part").write_bytes(part)
    quick: Callable[[float], None] = lambda _: None  # noqa: E731
    with replying(*replies) as (url, requests), mock.patch.object(download.time, "sleep", quick):
        try:
            download_file(f"{url}/file.zip", folder / "f.zip", MD5, timeout=2)
        finally:
            partial_size = (folder / "f.zip.part").stat().st_size if (folder / "f.zip.part").exists() else 0
            assert partial_size <= 100_000 + (1 << 18), "more than is allowed was written"
            assert not (folder / "f.zip").exists() or (folder / "f.zip").read_bytes() == CONTENT
            assert len(requests) < 40


def all_cases() -> Iterator[tuple[str, Case]]:
    for name, reply in REPLIES.items():
        yield name, partial(received, replies=(reply,))
    for name in ("the file", "a part", "a part of nonsense", "status 416", "a flood", "nothing", "a loop"):
        yield f"{name} to a part", partial(received, replies=(REPLIES[name],), part=CONTENT[:5])
    for number in range(n_cases(60)):
        rng = generator("reply", number)
        whole = (OK + CONTENT, CHUNKED + CHUNKS, redirect("/b"))[number % 3]
        head = whole[: whole.index(b"\r\n\r\n") + 4]
        kind = DAMAGES[int(rng.integers(len(DAMAGES)))]
        reply = damaged(head, kind, rng) + whole[len(head) :] if number % 2 else damaged(whole, kind, rng)
        yield f"{kind} {number}", partial(received, replies=(reply, OK + CONTENT) if number % 5 == 0 else (reply,))


CASES = named(all_cases())


@pytest.mark.parametrize("name", CASES)
def test_a_download_is_whole_or_one_sentence(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value in LIMITS.items():
        monkeypatch.setenv(variable, value)
    check(CASES[name], tmp_path)


def test_the_file_itself_arrives(tmp_path: Path) -> None:
    for number, name in enumerate(("the file", "the file in chunks")):
        (tmp_path / str(number)).mkdir()
        assert check(CASES[name], tmp_path / str(number)) == ""
        assert (tmp_path / str(number) / "f.zip").read_bytes() == CONTENT
