from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

from gmlfm.data.sources import download
from gmlfm.data.sources.download import download_file
from gmlfm.errors import DataError
from tests.data.sources.served import serving

CONTENT = bytes(range(256)) * 40
MD5 = hashlib.md5(CONTENT).hexdigest()


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

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with serving(CONTENT) as served, pytest.raises(DataError, match="No space left on device"):
        download_file(f"{served.url}/file.zip", tmp_path / "f.zip", MD5, progress=full)
    assert (tmp_path / "f.zip").read_bytes() == b"old"
