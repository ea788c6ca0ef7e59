"""Every source is checked, converted and put in place by its own entry in the catalogue."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from gmlfm import load_dataset
from gmlfm.cli import main
from gmlfm.data.sources import catalogue, named
from gmlfm.data.sources.archives import check_archive
from gmlfm.data.sources.bazaar import BUILT_IN
from gmlfm.data.sources.catalogue import Request, Source
from gmlfm.data.sources.fetch import accept_terms, get_dataset, terms_to_accept
from gmlfm.errors import DataError
from tests.data.sources.served import replying, serving
from tests.data.sources.test_named import movielens


def test_movielens_1m_is_downloaded_once_and_loads_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    movielens(tmp_path / "made")
    content = (tmp_path / "made" / "ml-1m.zip").read_bytes()
    root = tmp_path / "root"
    with serving(content) as served:
        source = replace(catalogue.SOURCES["ml-1m"], url=f"{served.url}/file.zip", md5=hashlib.md5(content).hexdigest())
        monkeypatch.setitem(catalogue.SOURCES, "ml-1m", source)
        for _ in range(2):
            get_dataset("ml-1m", root)
        assert len(served.requests) == 1
    assert load_dataset("ml-1m", data_root=root).n_interactions == 3


SONGS_TOML = """name = "songs"
[interactions]
path = "songs.zip!plays.csv"
user = "listener"
item = "song"
"""


def songs(path: Path, member: str = "plays.csv") -> bytes:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(member, "listener,song\n1,a\n1,b\n2,a\n")
    return path.read_bytes()


def test_a_new_source_is_one_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = songs(tmp_path / "published.zip")
    (tmp_path / "songs.toml").write_text(SONGS_TOML)
    monkeypatch.setattr(named, "description", lambda name: tmp_path / f"{name}.toml")
    root = tmp_path / "root"
    with serving(content) as served:
        source = Source("who listened to what", "songs", url=f"{served.url}/file.zip", described=True)
        monkeypatch.setitem(catalogue.SOURCES, "songs", source)
        for _ in range(2):
            assert get_dataset("songs", root) == root / "songs"
        assert len(served.requests) == 1
    assert (root / "songs" / "songs.zip").read_bytes() == content
    assert load_dataset("songs", data_root=root).n_interactions == 3
    assert named.folder_of("songs", root) == root / "songs"
    damaged = tmp_path / "damaged.zip"
    damaged.write_bytes(content.replace(b"listener,song", b"LISTENER,song", 1))
    with pytest.raises(DataError, match=r"the member 'plays\.csv' is damaged"):
        get_dataset("songs", root, files=[damaged])
    assert (root / "songs" / "songs.zip").read_bytes() == content


def test_a_new_source_brings_its_own_check_and_converter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def convert(request: Request) -> None:
        request.folder.mkdir()
        (request.folder / "songs.zip").write_bytes(request.files[0].read_bytes())
        (request.folder / "dataset.toml").write_text(SONGS_TOML)

    check = partial(check_archive, needed=("plays.csv",))
    source = Source("who listened to what", "songs", url="http://localhost/songs.zip", check=check, convert=convert)
    monkeypatch.setitem(catalogue.SOURCES, "songs", source)
    songs(tmp_path / "other.zip", member="artists.csv")
    with pytest.raises(DataError, match=r"has no member 'plays\.csv'; it holds artists\.csv"):
        get_dataset("songs", tmp_path, files=[tmp_path / "other.zip"])
    assert not (tmp_path / "songs").exists()
    songs(tmp_path / "published.zip")
    get_dataset("songs", tmp_path, files=[tmp_path / "published.zip"])
    assert load_dataset("songs", data_root=tmp_path).n_interactions == 3


def test_terms_are_shown_and_accepted_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    movielens(tmp_path / "made")
    arguments = [
        "data",
        "get",
        "ml-1m",
        "--from",
        str(tmp_path / "made" / "ml-1m.zip"),
        "--any-checksum",
        "--data-root",
        str(tmp_path),
    ]
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert main(arguments) == 2
    message = capsys.readouterr().err
    assert "may not be redistributed" in message
    assert "must be accepted first" in message
    assert not (tmp_path / "ml-1m").exists()
    assert main([*arguments, "--accept-terms"]) == 0
    capsys.readouterr()
    assert main([*arguments, "--json"]) == 0
    assert capsys.readouterr().err == ""
    assert terms_to_accept("ml-1m", tmp_path) is None
    assert terms_to_accept("bazaar", tmp_path) is None
    accept_terms("ml-100k", tmp_path)
    assert terms_to_accept("ml-1m", tmp_path) is None


def test_a_local_archive_with_another_checksum_is_refused(tmp_path: Path) -> None:
    movielens(tmp_path / "made")
    with pytest.raises(
        DataError, match=r"the official archive c4d9eecfca2ab87c1945afe126590906; fetch it again, or .*--any-checksum"
    ):
        get_dataset("ml-1m", tmp_path, files=[tmp_path / "made" / "ml-1m.zip"])
    with pytest.raises(DataError, match="does not exist or is no file"):
        get_dataset("ml-1m", tmp_path, files=[tmp_path / "gone.zip"])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("../evil.dat", b"x", "a path that leads outside"),
        ("/etc/evil.dat", b"x", "a path that leads outside"),
        ("bomb.dat", b"0" * 3_000_000, "looks like a bomb"),
        ("other.dat", b"x", "has no member 'ml-1m/ratings.dat'"),
    ],
)
def test_dangerous_or_wrong_archives_are_not_opened(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    with pytest.raises(DataError) as caught:
        get_dataset("ml-1m", tmp_path, files=[tmp_path / "a.zip"], any_checksum=True)
    assert message in str(caught.value)
    assert not (tmp_path / "ml-1m").exists()


def test_the_list_shows_what_is_here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    movielens(tmp_path / "ml-1m")
    assert main(["data", "list", "--data-root", str(tmp_path), "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["ml-1m"]["here"] == str(tmp_path / "ml-1m")
    assert rows["ml-1m"]["bytes"] > 0
    assert rows["ml-100k"]["here"] is None
    assert main(["data", "list", "--data-root", str(tmp_path)]) == 0
    assert "built in" in capsys.readouterr().out


def test_wrong_names_and_sizes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = ["--data-root", str(tmp_path)]
    for arguments, message in (
        (["ml-2m"], "did you mean 'ml-1m'"),
        (["amazon-auto", "--accept-terms"], "cannot be downloaded; give reviews_Automotive_5.json.gz"),
        (["amazon-auto", "--accept-terms", "--from", str(tmp_path)], "no file named reviews_Automotive* was given"),
        (["bazaar", "--purchases", "0"], "a bazaar needs users and purchases"),
        (["bazaar", "--purchases", "900000000000000"], "GiB free; ask for fewer"),
        (["ml-1m", "--purchases", "10"], "--users and --purchases belong to bazaar"),
    ):
        assert main(["data", "get", *arguments, *root]) == 2
        assert message in capsys.readouterr().err
    assert main(["data", "get", "bazaar", "--users", "100", *root]) == 0
    assert load_dataset("bazaar-100-1212-0", data_root=tmp_path).n_interactions == 1212


def test_an_older_market_is_had_by_its_name_in_any_size(tmp_path: Path) -> None:
    for arguments, name in ((["--users", "100"], "bazaar-v2-100-1212-0"), ([], "bazaar-v2")):
        assert main(["data", "get", "bazaar-v2", *arguments, "--data-root", str(tmp_path)]) == 0
        assert load_dataset(tmp_path / name).name == name
    assert load_dataset(tmp_path / "bazaar-v2").content_hash == load_dataset("bazaar-v2").content_hash


def test_a_dataset_replaces_no_other_files(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "x.libfm").write_text("1 0:1 5:1\n")
    with pytest.raises(DataError, match=r"holds 'x\.libfm', which would be lost"):
        get_dataset("libfm", tmp_path, files=[tmp_path / "p" / "x.libfm"], out=tmp_path / "p")
    assert (tmp_path / "p" / "x.libfm").exists()


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("", 2), ("no", 2)])
def test_a_person_is_asked_to_accept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, code: int) -> None:
    movielens(tmp_path / "made")
    terminal = io.StringIO()
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr("sys.stdin", terminal)
    monkeypatch.setattr("builtins.input", lambda: answer)
    archive = str(tmp_path / "made" / "ml-1m.zip")
    assert main(["data", "get", "ml-1m", "--from", archive, "--any-checksum", "--data-root", str(tmp_path)]) == code
    assert (tmp_path / "ml-1m").exists() == (code == 0)


def test_a_hostile_server_is_one_sentence_and_exit_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    replies = {
        b"HTTP/1.1 200 OK\r\nContent-Length: abc\r\n\r\n": "the server sent the header Content-Length: 'abc'",
        b"HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\n\r\n": "'file:///etc/passwd' is not allowed",
        b"HTTP/1.1 404 \x1b[31mGone\r\n\r\n": r"the server answered 404 \x1b[31mGone",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9000000\r\n\r\n": "sends more than the 6,490,000 bytes that are allowed",
    }
    for reply, message in replies.items():
        with replying(reply) as (url, _):
            monkeypatch.setitem(catalogue.SOURCES, "ml-1m", replace(catalogue.SOURCES["ml-1m"], url=f"{url}/file.zip"))
            assert main(["data", "get", "ml-1m", "--accept-terms", "--data-root", str(tmp_path)]) == 2
        *_, sentence = capsys.readouterr().err.splitlines()
        assert message in sentence
        assert sentence.isprintable()
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["accepted-terms.json", "downloads"]


@pytest.mark.parametrize("name", [name for name in catalogue.SOURCES if name not in BUILT_IN])
@pytest.mark.parametrize(
    "path", ["a\0b", "a" * 300, "gone", "/dev/zero", "\ud800"], ids=["nul", "long", "gone", "device", "half"]
)
def test_files_and_folders_that_cannot_be_are_one_sentence(tmp_path: Path, name: str, path: str) -> None:
    with pytest.raises(DataError, match=r"cannot be a file's name|does not exist|no file|is not a folder|is a device"):
        get_dataset(name, tmp_path / "root", files=[tmp_path / path], category="x")
    assert not (tmp_path / "root").exists()


@pytest.mark.parametrize("out", ["a\0b", "a" * 300, "file/below"])
def test_places_that_cannot_be_are_one_sentence(tmp_path: Path, out: str) -> None:
    movielens(tmp_path / "made")
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"cannot be a file's name|could not be written"):
        get_dataset("ml-1m", tmp_path, files=[tmp_path / "made" / "ml-1m.zip"], any_checksum=True, out=tmp_path / out)
    (tmp_path / "accepted-terms.json").write_text("[" * 50_000)
    assert terms_to_accept("ml-1m", tmp_path) is not None
