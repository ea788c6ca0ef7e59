"""What a server may answer: bad headers and redirects are one sentence, and nothing is tried again in vain."""

from __future__ import annotations

import email.message
import io
import urllib.request
from pathlib import Path

import pytest

from gmlfm.data.sources import download
from gmlfm.data.sources.download import download_file
from gmlfm.data.sources.transfer import Deadline, Redirects, requested
from gmlfm.errors import DataError
from tests.data.sources.served import dripping, flooding, replying


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download.time, "sleep", lambda _: None)


def refusal(reply: bytes, folder: Path, part: bytes = b"") -> str:
    """The sentence in which a download ends that gets this reply; `part`: what an earlier try left."""
    if part:
        (folder / "f.zip.part").write_bytes(part)
    with replying(reply) as (url, _), pytest.raises(DataError) as caught:
        download_file(f"{url}/file.zip", folder / "f.zip", timeout=5)
    assert not (folder / "f.zip").exists()
    assert str(caught.value).isprintable()
    return str(caught.value).replace(url, "URL")


@pytest.mark.parametrize(
    ("header", "shown"),
    [
        ("Content-Length: abc", "Content-Length: 'abc'"),
        ("Content-Length: -5", "Content-Length: '-5'"),
        ("Content-Length: 1e3", "Content-Length: '1e3'"),
        ("Content-Length: " + "9" * 40, "Content-Length: '9999"),
        ("Content-Length:", "Content-Length: ''"),
        ("Content-Length: 3\r\nContent-Length: 4", "Content-Length: '3, 4'"),
        ("Content-Length: \x1b[31m", "Content-Length: '\\x1b[31m'"),
    ],
)
def test_a_length_that_is_no_number_is_one_sentence(tmp_path: Path, header: str, shown: str) -> None:
    message = refusal(f"HTTP/1.1 200 OK\r\n{header}\r\n\r\nabc".encode("latin-1"), tmp_path)
    assert message.startswith(f"URL/file.zip cannot be had: the server sent the header {shown}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("value", ["bytes 0-5/6", "bytes 4-6/7", "bytes -3-5/9", "abc", "bytes */10", "", "bytes 3-\x1b[2J/9"])
def test_other_bytes_than_asked_for_are_refused(tmp_path: Path, value: str) -> None:
    reply = f"HTTP/1.1 206 Partial\r\nContent-Length: 3\r\nContent-Range: {value}\r\n\r\nabc".encode("latin-1")
    message = refusal(reply, tmp_path, part=b"xyz")
    assert "asked for the bytes from 3 on, the server answered 206 with Content-Range: " in message
    assert (tmp_path / "f.zip.part").read_bytes() == b"xyz"


def test_a_part_that_nobody_asked_for_is_refused(tmp_path: Path) -> None:
    reply = b"HTTP/1.1 206 Partial\r\nContent-Length: 3\r\nContent-Range: bytes 5-7/9\r\n\r\nabc"
    assert "asked for the bytes from 0 on" in refusal(reply, tmp_path)


@pytest.mark.parametrize(
    "reply",
    [
        b"",
        b"\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/9.9 200 OK\r\n\r\nabc",
        b"HTTP/1.1 99999 OK\r\n\r\n",
        b"\x1b]0;owned\x07 200\r\n\r\n",
        b"HTTP/1.1 200 " + b"x" * 70_000,
        b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"f" * 70_000,
    ],
    ids=range(12),
)
def test_replies_that_are_no_http_are_one_sentence(tmp_path: Path, reply: bytes) -> None:
    message = refusal(reply, tmp_path)
    assert message.startswith("URL/file.zip could not be fetched (")
    assert message.endswith("bytes are kept, and the same command goes on from there.")


@pytest.mark.parametrize(
    ("status", "shown"),
    [
        ("204 No Content", "the server answered 204 No Content; use --from FILE"),
        ("404 \x1b[31mGone\x07", "the server answered 404 \\x1b[31mGone\\x07; use --from FILE"),
        ("500", "the server answered 500 ; use --from FILE"),
        ("304 Not Modified", "the server answered 304 Not Modified; use --from FILE"),
    ],
)
def test_statuses_other_than_the_file_are_one_sentence(tmp_path: Path, status: str, shown: str) -> None:
    assert shown in refusal(f"HTTP/1.1 {status}\r\n\r\n".encode("latin-1"), tmp_path)


@pytest.mark.parametrize(
    ("location", "shown"),
    [
        ("/file.zip", "would lead to an infinite loop"),
        ("file:///etc/passwd", "'file:///etc/passwd' is not allowed"),
        ("ftp://127.0.0.1/x", "leads to ftp://127.0.0.1/x, which is not followed: expected https"),
        ("data:text/plain,x", "is not allowed"),
        ("http://[::1", "could not be fetched"),
        ("http://" + "a" * 100 + "/", "could not be fetched"),
        ("http://127.0.0.1:99999/x", "could not be fetched"),
        ("//\x1b[2J/x", "could not be fetched"),
        ("", "answered 302"),
    ],
)
def test_redirects_that_lead_nowhere_are_one_sentence(tmp_path: Path, location: str, shown: str) -> None:
    header = f"Location: {location}\r\n" if location else ""
    message = refusal(f"HTTP/1.1 302 Found\r\n{header}Content-Length: 0\r\n\r\n".encode("latin-1"), tmp_path)
    assert shown in message


def test_a_chain_of_redirects_has_an_end(tmp_path: Path) -> None:
    def hop(n: int) -> bytes:
        return f"HTTP/1.1 302 Found\r\nLocation: /{n}\r\nContent-Length: 0\r\n\r\n".encode()

    end = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"
    with replying(*map(hop, range(4)), end) as (url, _):
        download_file(f"{url}/file.zip", tmp_path / "f.zip")
    assert (tmp_path / "f.zip").read_bytes() == b"abc"
    with replying(*map(hop, range(9)), end) as (url, requests), pytest.raises(DataError, match="infinite loop"):
        download_file(f"{url}/file.zip", tmp_path / "g.zip")
    assert len(requests) == 6


def test_from_https_no_redirect_leads_to_http() -> None:
    headers = email.message.Message()
    handler = Redirects()
    request = urllib.request.Request("https://example.org/a")
    with pytest.raises(DataError, match=r"https://example\.org/a leads to http://example\.org/b, which is not followed"):
        handler.redirect_request(request, io.BytesIO(), 302, "Found", headers, "http://example.org/b")
    followed = handler.redirect_request(request, io.BytesIO(), 302, "Found", headers, "https://example.org/b")
    assert followed.full_url == "https://example.org/b"


@pytest.mark.parametrize("reply", [dripping, flooding])
def test_the_text_of_a_redirect_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reply: type) -> None:
    monkeypatch.setenv("GMLFM_DOWNLOAD_SECONDS", "20")
    endless = reply(b"HTTP/1.1 302 Found\r\nLocation: /b\r\n\r\n")
    with replying(endless, b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc") as (url, _):
        download_file(f"{url}/file.zip", tmp_path / "f.zip")
    assert (tmp_path / "f.zip").read_bytes() == b"abc"


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://example.org/x", "/etc/passwd", "data:,x"])
def test_only_the_web_is_asked(url: str) -> None:
    with (
        Deadline(5) as deadline,
        pytest.raises(DataError, match="is no address on the web"),
        requested(url, 0, deadline, 1),
    ):
        pass
