from __future__ import annotations

import os
import socket
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path

import polars as pl
import pytest

from gmlfm import reading as reading_module
from gmlfm.errors import DataError, OptionError
from gmlfm.reading import (
    READ_ERRORS,
    check_parquet_size,
    check_regular,
    file_status,
    is_folder,
    is_regular,
    limit,
    parquet_rows,
    parse_json,
    read_parquet,
    reading,
    reason,
)


@pytest.mark.parametrize("text", ["0", "-1", "many", "nan", "1 GiB"])
def test_a_limit_that_is_no_number_above_zero_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("GMLFM_READ_RATIO", text)
    with pytest.raises(OptionError, match=f"GMLFM_READ_RATIO is '{text}'; expected a number above 0"):
        limit("GMLFM_READ_RATIO", 200)


def test_a_limit_is_the_environments_or_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GMLFM_READ_RATIO", raising=False)
    assert limit("GMLFM_READ_RATIO", 200) == 200
    monkeypatch.setenv("GMLFM_READ_RATIO", " 1e3 ")
    assert limit("GMLFM_READ_RATIO", 200) == 1000


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a\0b", r"'.*a\\x00b' cannot be a file's name \(embedded null byte\)"),
        ("a" * 300, r"\.\.\.' cannot be a file's name \(File name too long\)"),
        ("\ud800", "cannot be a file's name"),
    ],
)
def test_a_name_that_no_file_can_have_is_refused(name: str, message: str) -> None:
    for question in (file_status, is_folder, is_regular, check_regular):
        with pytest.raises(DataError, match=message):
            question(name)


def test_what_is_not_there_is_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert file_status(tmp_path / "gone") is None
    assert not is_folder(tmp_path / "file" / "below")
    assert not is_regular(tmp_path)
    assert is_folder(tmp_path)
    assert is_regular(tmp_path / "file")


def test_special_files_are_named_by_their_kind(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        kinds = {
            tmp_path: "a folder",
            tmp_path / "pipe": "a pipe",
            tmp_path / "socket": "a socket",
            Path(os.devnull): "a device",
        }
        for path, kind in kinds.items():
            with pytest.raises(DataError, match=f"is {kind}; expected a file"):
                check_regular(path)


def test_folders_that_may_not_be_read_are_one_sentence(tmp_path: Path) -> None:
    """In a process without the rights that root has."""
    (tmp_path / "closed").mkdir()
    (tmp_path / "closed" / "t.csv").write_text("a,b\n1,2\n")
    (tmp_path / "closed.csv").write_text("a,b\n1,2\n")
    os.chmod(tmp_path / "closed", 0)
    os.chmod(tmp_path / "closed.csv", 0)
    code = """
import os, sys
from gmlfm.reading import file_status
from gmlfm.streams import read_bytes
from gmlfm.errors import DataError
if os.getuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
for question, name in ((file_status, "closed/t.csv"), (read_bytes, "closed.csv")):
    try:
        question(name)
    except DataError as error:
        print(error)
"""
    os.chmod(tmp_path, 0o755)
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    os.chmod(tmp_path / "closed", 0o700)
    assert done.returncode == 0, done.stderr
    unseen, unread = done.stdout.splitlines()
    assert unseen == "closed/t.csv could not be looked at (Permission denied); may this user read the folders above it?"
    assert unread == "closed.csv could not be read (Permission denied)."


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (FileNotFoundError(2, "No such file"), "t.csv does not exist; check path."),
        (IsADirectoryError(21, "Is a directory"), "t.csv could not be read (Is a directory); try again."),
        (EOFError(), "t.csv is truncated"),
        (zlib.error("bad"), "t.csv is damaged or not what its name says (bad); fetch the file again."),
        (zipfile.BadZipFile("bad"), "t.csv is damaged or not what its name says (bad); fetch the file again."),
        (RecursionError("maximum depth"), "t.csv could not be read (it is nested too deeply); try again."),
        (pl.exceptions.PanicException("index\nout of bounds"), "t.csv could not be read (index); try again."),
        (KeyError("member"), "t.csv could not be read ('member'); try again."),
        (ValueError(""), "t.csv could not be read (ValueError); try again."),
    ],
)
def test_errors_of_decoders_become_one_sentence(error: BaseException, message: str) -> None:
    with pytest.raises(DataError) as caught, reading("t.csv", advice="try again"):
        raise error
    assert str(caught.value).startswith(message)
    assert "\n" not in reason(error)


def test_what_is_no_error_of_reading_passes() -> None:
    with pytest.raises(MemoryError), reading("t.csv"):
        raise MemoryError
    with pytest.raises(KeyboardInterrupt), reading("t.csv"):
        raise KeyboardInterrupt


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "{", "9" * 5_000])
def test_json_is_a_value_or_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"nested too deeply|Expecting|Exceeds"):
        parse_json(text)
    assert parse_json('{"a": [1]}') == {"a": [1]}


@pytest.mark.parametrize("name", ["x[1].parquet", "*.parquet", "a?.parquet", "date=2020.parquet"])
def test_a_parquet_file_is_the_one_that_is_named(tmp_path: Path, name: str) -> None:
    pl.DataFrame({"a": [1]}).write_parquet(tmp_path / "x1.parquet")
    pl.DataFrame({"a": [1, 2]}).write_parquet(tmp_path / name)
    assert read_parquet(tmp_path / name)["a"].to_list() == [1, 2]
    assert parquet_rows(tmp_path / name) == 2
    check_parquet_size(tmp_path / name)


def test_a_parquet_file_that_stands_for_more_than_memory_holds_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.parquet"
    pl.DataFrame({"a": [7]}).select(pl.col("a").repeat_by(1_000_000).explode(empty_as_null=False)).write_parquet(path)
    assert path.stat().st_size < 100_000
    monkeypatch.setattr(reading_module, "free_memory", lambda: 5_000_000)
    with pytest.raises(DataError, match=r"gives 8,000,000 bytes or more, and 5,000,000 are allowed; .*GMLFM_READ_BYTES"):
        check_parquet_size(path)
    monkeypatch.setenv("GMLFM_READ_BYTES", "1e7")
    check_parquet_size(path)


def test_the_panic_of_polars_is_an_error_of_reading() -> None:
    assert issubclass(pl.exceptions.PanicException, READ_ERRORS)
    assert not issubclass(KeyboardInterrupt, READ_ERRORS)
