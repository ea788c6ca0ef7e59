from __future__ import annotations

import hashlib
import io
import shutil
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from gmlfm.data.sources import download
from gmlfm.data.sources.download import download_file
from gmlfm.errors import DataError
from tests.data.sources.served import dripping, flooding, replying, serving

CONTENT = bytes(range(256)) * 40
MD5 = hashlib.md5(CONTENT).hexdigest()
OK = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download.time, "sleep", lambda _: None)


def test_a_file_arrives_complete_with_progress(tmp_path: Path) -> None:
    reports: list[tuple[int, int | None]] = []
    with serving(CONTENT) as served:
        download_file(f"{served.url}/file.zip", tmp_path / "f.zip", MD5, lambda *report: reports.append(report))
    assert (tmp_path / "f.zip").read_bytes() == CONTENT
    assert reports[-1] == (len(CONTENT), len(CONTENT))
    assert [path.name for path in tmp_path.iterdir()] == ["f.zip"]


def test_an_interrupted_download_goes_on_where_it_was(tmp_path: Path) -> None:
    with serving(CONTENT) as served:
        served.break_after = [3000, 2000]
        download_file(f"{served.url}/file.zip", tmp_path / "f.zip", MD5)
    assert (tmp_path / "f.zip").read_bytes() == CONTENT
    assert [byte_range for _, byte_range in served.requests] == [None, "bytes=3000-", "bytes=5000-"]


def test_what_was_downloaded_stays_when_the_server_fails_for_good(tmp_path: Path) -> None:
    with serving(CONTENT) as served:
        served.break_after = [2000, 0, 0, 0]
        with pytest.raises(DataError, match=r"could not be fetched .* 2,000 bytes are kept, and the same command goes on"):
            download_file(f"{served.url}/file.zip", tmp_path / "f.zip", MD5)
        assert not (tmp_path / "f.zip").exists()
        download_file(f"{served.url}/file.zip", tmp_path / "f.zip", MD5)
    assert served.requests[-1][1] == "bytes=2000-"
    assert (tmp_path / "f.zip").read_bytes() == CONTENT


def test_a_server_without_ranges_sends_the_file_from_its_beginning(tmp_path: Path) -> None:
    with serving(CONTENT) as served:
        served.ranges, served.break_after = False, [3000]
        download_file(f"{served.url}/file.zip", tmp_path / "f.zip", MD5)
    assert (tmp_path / "f.zip").read_bytes() == CONTENT


def test_a_partial_file_that_is_complete_needs_no_more(tmp_path: Path) -> None:
    (tmp_path / "f.zip.part").write_bytes(CONTENT)
    with serving(CONTENT) as served:
        download_file(f"{served.url}/file.zip", tmp_path / "f.zip", MD5)
    assert (tmp_path / "f.zip").read_bytes() == CONTENT


def test_redirects_are_followed(tmp_path: Path) -> None:
    with serving(CONTENT) as served:
        download_file(f"{served.url}/moved.zip", tmp_path / "f.zip", MD5)
    assert (tmp_path / "f.zip").read_bytes() == CONTENT


def test_a_wrong_checksum_throws_the_download_away_and_keeps_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "f.zip").write_bytes(b"old")
    with (
        serving(CONTENT) as served,
        pytest.raises(DataError, match=r"has the checksum .*, expected 0000; the download was thrown away"),
    ):
        download_file(f"{served.url}/file.zip", tmp_path / "f.zip", "0000")
    assert (tmp_path / "f.zip").read_bytes() == b"old"
    assert not (tmp_path / "f.zip.part").exists()


def test_a_missing_file_is_reported_at_once(tmp_path: Path) -> None:
    with serving(CONTENT) as served, pytest.raises(DataError, match="the server answered 404 Not Found; use --from FILE"):
        download_file(f"{served.url}/other.zip", tmp_path / "f.zip")
    assert len(served.requests) == 1
    with pytest.raises(DataError, match="could not be fetched"):
        download_file(f"{served.url}/file.zip", tmp_path / "f.zip", timeout=1)


def test_no_space_left_is_seen_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(download.shutil, "disk_usage", lambda _: usage._replace(free=100))
    with serving(CONTENT) as served, pytest.raises(DataError, match=r"GiB free; make room or choose another place"):
        download_file(f"{served.url}/file.zip", tmp_path / "f.zip")
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fills_up_on_the_way_leaves_the_old_file_intact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "f.zip").write_bytes(b"old")
    opened = Path.open

    def open_full(path: Path, *arguments: Any, **options: Any) -> Any:
        file = opened(path, *arguments, **options)
        if path.suffix == ".part":
            file.write(b"begun")

            class Full(io.RawIOBase):
                def write(self, _: Any) -> int:
                    raise OSError(28, "No space left on device")

            file.close()
            return Full()
        return file

    monkeypatch.setattr(Path, "open", open_full)
    with (
        serving(CONTENT) as served,
        pytest.raises(DataError, match=r"f\.zip\.part could not be written \(No space left on device"),
    ):
        download_file(f"{served.url}/file.zip", tmp_path / "f.zip", MD5)
    assert len(served.requests) == 1
    assert (tmp_path / "f.zip").read_bytes() == b"old"


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 2", b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\n\r\n", OK % 10**6])
def test_a_server_that_drips_is_left_at_the_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: bytes) -> None:
    """Whatever it drips: the status line, a header, a body without a length or with one. Each byte renews a socket's timeout."""
    monkeypatch.setenv("GMLFM_DOWNLOAD_SECONDS", "0.3")
    with replying(dripping(head)) as (url, _), pytest.raises(DataError) as caught:
        download_file(f"{url}/file.zip", tmp_path / "f.zip", MD5)
    assert "was not complete after 0.3 seconds;" in str(caught.value)
    assert str(caught.value).endswith(
        "bytes are kept, and the same command goes on from there (GMLFM_DOWNLOAD_SECONDS allows more)."
    )
    assert not (tmp_path / "f.zip").exists()


def test_what_came_before_the_deadline_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def half(connection: socket.socket, over: threading.Event) -> None:
        connection.sendall(OK % len(CONTENT) + CONTENT[:5000])
        over.wait()

    monkeypatch.setenv("GMLFM_DOWNLOAD_SECONDS", "0.3")
    with replying(half) as (url, _), pytest.raises(DataError, match="5,000 bytes are kept"):
        download_file(f"{url}/file.zip", tmp_path / "f.zip", MD5)
    monkeypatch.delenv("GMLFM_DOWNLOAD_SECONDS")
    with serving(CONTENT) as served:
        download_file(f"{served.url}/file.zip", tmp_path / "f.zip", MD5)
    assert served.requests == [("/file.zip", "bytes=5000-")]
    assert (tmp_path / "f.zip").read_bytes() == CONTENT


@pytest.mark.parametrize(
    "reply",
    [
        flooding(b"HTTP/1.1 200 OK\r\n\r\n"),
        flooding(OK % 10**17),
        flooding(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\nFFFFFFFFF\r\n"),
        OK % 2_000 + bytes(2_000),
    ],
    ids=["no length", "a large length", "chunks", "a length just above"],
)
def test_more_bytes_than_declared_are_stopped_before_the_checksum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reply: Any
) -> None:
    monkeypatch.setattr(download, "checksum", lambda _: pytest.fail("the checksum was made"))
    with (
        replying(reply) as (url, requests),
        pytest.raises(DataError, match=r"sends more than the 1,100 bytes that are allowed; .*GMLFM_DOWNLOAD_BYTES allows more"),
    ):
        download_file(f"{url}/file.zip", tmp_path / "f.zip", MD5, declared_bytes=1_000)
    assert list(tmp_path.iterdir()) == []
    assert len(requests) == 1


def test_more_can_be_allowed_and_a_partial_file_that_is_too_long_is_thrown_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GMLFM_DOWNLOAD_BYTES", str(len(CONTENT)))
    (tmp_path / "f.zip.part").write_bytes(bytes(len(CONTENT) + 1))
    with serving(CONTENT) as served:
        download_file(f"{served.url}/file.zip", tmp_path / "f.zip", MD5, declared_bytes=100)
    assert served.requests == [("/file.zip", None)]
    assert (tmp_path / "f.zip").read_bytes() == CONTENT


def test_a_length_that_promises_less_or_more_is_seen(tmp_path: Path) -> None:
    with replying(OK % 100 + CONTENT) as (url, _), pytest.raises(DataError, match="the download was thrown away"):
        download_file(f"{url}/file.zip", tmp_path / "f.zip", MD5)
    with (
        replying(OK % 20_000 + CONTENT) as (url, requests),
        pytest.raises(DataError, match=r"IncompleteRead.*10,240 bytes are kept"),
    ):
        download_file(f"{url}/file.zip", tmp_path / "g.zip", MD5)
    assert b"Range: bytes=10240-" in requests[1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["g.zip.part"]


@pytest.mark.parametrize("kind", ["target", "partial"])
def test_nothing_is_written_through_a_link(tmp_path: Path, kind: str) -> None:
    (tmp_path / "precious").write_bytes(b"keep")
    (tmp_path / ("f.zip" if kind == "target" else "f.zip.part")).symlink_to(tmp_path / "precious")
    with serving(CONTENT) as served, pytest.raises(DataError, match="is a symbolic link and would be replaced"):
        download_file(f"{served.url}/file.zip", tmp_path / "f.zip", MD5)
    assert served.requests == []
    assert (tmp_path / "precious").read_bytes() == b"keep"


def test_a_partial_file_of_another_file_is_thrown_away(tmp_path: Path) -> None:
    (tmp_path / "f.zip.part").write_bytes(bytes(500))
    wrong_range = b"HTTP/1.1 416 No\r\nContent-Range: bytes */%d\r\nContent-Length: 0\r\n\r\n" % len(CONTENT)
    with replying(wrong_range, OK % len(CONTENT) + CONTENT) as (url, requests):
        download_file(f"{url}/file.zip", tmp_path / "f.zip")
    assert [b"Range" in request for request in requests] == [True, False]
    assert (tmp_path / "f.zip").read_bytes() == CONTENT
