from __future__ import annotations

import sys
from pathlib import Path

import psutil
import pytest

from gmlfm.errors import DataError
from gmlfm.storage import cache_folder, free_memory, new_folder, write_text


def test_a_text_is_written_completely_or_not_at_all(tmp_path: Path) -> None:
    write_text(tmp_path / "deep" / "a.txt", "old")
    write_text(tmp_path / "deep" / "a.txt", "new")
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["a.txt"]
    with pytest.raises(UnicodeEncodeError):
        write_text(tmp_path / "deep" / "a.txt", "newest \ud800")
    assert (tmp_path / "deep" / "a.txt").read_text() == "new"
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["a.txt"]


def test_a_folder_is_replaced_completely_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "run"
    with new_folder(target) as new:
        (new / "a").write_text("old")
    with pytest.raises(DataError), new_folder(target, holds=("a",)) as new:
        (new / "a").write_text((new / "gone").read_text())
    assert (target / "a").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_what_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(DataError, match="could not be written"):
        write_text(tmp_path / "file" / "below", "text")
    with pytest.raises(DataError, match="could not be written"), new_folder(tmp_path / "file" / "below"):
        pass


def test_foreign_files_are_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "thesis.txt").write_text("keep")
    with pytest.raises(DataError, match=r"holds 'thesis\.txt', which would be lost"), new_folder(tmp_path / "p", holds=("a",)):
        pass
    with pytest.raises(DataError, match="is a file"), new_folder(tmp_path / "p" / "thesis.txt"):
        pass
    assert (tmp_path / "p" / "thesis.txt").read_text() == "keep"


@pytest.mark.skipif(sys.platform != "linux", reason="the folder is the platform's")
def test_the_cache_is_where_linux_has_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "elsewhere"))
    assert cache_folder() == tmp_path / "elsewhere" / "gmlfm"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "gmlfm"
    assert not cache_folder().exists()


def test_free_memory_is_a_share_of_all() -> None:
    assert 0 < free_memory() <= psutil.virtual_memory().total
