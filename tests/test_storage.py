from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import polars as pl
import psutil
import pytest

from gmlfm.errors import DataError
from gmlfm.storage import cache_folder, free_memory, is_private, new_file, new_folder, write_text


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


@pytest.mark.skipif(sys.platform != "linux", reason="the folder is the platform's")
def test_without_a_home_the_cache_is_among_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No HOME, and a user that the system does not know: a `~` would become a folder of that name."""
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", dict[int, object]().__getitem__)
    assert cache_folder() == Path(tempfile.gettempdir()) / f"gmlfm-{os.getuid()}"


def test_free_memory_is_a_share_of_all() -> None:
    assert 0 < free_memory() <= psutil.virtual_memory().total


def test_a_file_of_any_writer_is_whole_or_not_there(tmp_path: Path) -> None:
    with new_file(tmp_path / "table.parquet") as draft:
        pl.DataFrame({"a": [1]}).write_parquet(draft)
    with pytest.raises(ZeroDivisionError), new_file(tmp_path / "table.parquet") as draft:
        pl.DataFrame({"a": [1 // 0]}).write_parquet(draft)
    assert pl.read_parquet(tmp_path / "table.parquet")["a"].to_list() == [1]
    assert [path.name for path in tmp_path.iterdir()] == ["table.parquet"]


@pytest.mark.parametrize("kind", ["link", "dangling link", "folder", "pipe", "device"])
def test_only_regular_files_are_replaced(tmp_path: Path, kind: str) -> None:
    target, other = tmp_path / "target", tmp_path / "other"
    other.write_text("keep")
    if kind == "link":
        target.symlink_to(other)
    elif kind == "dangling link":
        target.symlink_to(tmp_path / "nowhere")
    elif kind == "folder":
        target.mkdir()
    elif kind == "pipe":
        os.mkfifo(target)
    else:
        target = Path(os.devnull)
    before = os.lstat(target)
    with pytest.raises(DataError, match=r"is a .* and would be replaced; give the name of a file"):
        write_text(target, "text")
    if "link" in kind:
        with pytest.raises(DataError, match="is a symbolic link"), new_folder(target):
            pass
    after = os.lstat(target)
    assert (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode)
    assert other.read_text() == "keep"


@pytest.mark.parametrize(("name", "message"), [("a\0b", "cannot be a file's name"), ("a" * 300, "could not be written")])
def test_names_that_no_file_can_have(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        write_text(tmp_path / name, "text")


def test_a_full_disk_is_one_sentence_for_every_writer(tmp_path: Path) -> None:
    """A limit on the size of files stands in for a full disk: every write beyond it fails."""
    code = textwrap.dedent("""
        import resource, signal, sys
        from pathlib import Path
        import polars as pl, torch
        from safetensors.torch import save_file
        from gmlfm.errors import DataError
        from gmlfm.storage import new_file, new_folder
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        folder = Path(sys.argv[1])
        writers = {
            "text": lambda path: path.write_text("x" * 100_000),
            "parquet": lambda path: pl.DataFrame({"a": range(100_000)}).write_parquet(path),
            "sink": lambda path: pl.LazyFrame({"a": range(100_000)}).sink_parquet(path),
            "tensors": lambda path: save_file({"a": torch.zeros(100_000)}, path),
        }
        for name, write in writers.items():
            for context in (new_file, new_folder):
                try:
                    with context(folder / name) as draft:
                        write(draft if context is new_file else draft / "inner")
                except DataError as error:
                    assert "could not be written" in str(error) and chr(10) not in str(error), error
                else:
                    raise AssertionError(f"{name} was written")
        assert not list(folder.iterdir()), list(folder.iterdir())
    """)
    done = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_folder_is_private_where_nobody_else_can_put_anything_into_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "outer" / "inner"
    folder.mkdir(parents=True, mode=0o700)
    assert is_private(folder)
    folder.chmod(0o755)
    assert is_private(folder)
    folder.chmod(0o777)
    assert not is_private(folder)
    folder.chmod(0o700)
    folder.parent.chmod(0o777)  # another folder could be put in its place
    assert not is_private(folder)
    folder.parent.chmod(0o1777)  # as /tmp: only the owner may rename
    assert is_private(folder)
    (tmp_path / "link").symlink_to(folder)
    assert not is_private(tmp_path / "link")
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert not is_private(folder)


@pytest.mark.parametrize("is_own", [True, False])
def test_a_group_of_the_users_own_is_nobody_else(is_own: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    folder.chmod(0o775)
    monkeypatch.setattr("gmlfm.storage._is_named_like_user", lambda group: is_own)
    assert is_private(folder) is is_own


def test_a_name_that_is_no_text_is_refused_in_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"caf\xe9")
    for writer in (new_file, new_folder):
        with pytest.raises(DataError, match="no name that can be written"), writer(path):
            pass
    assert not list(tmp_path.iterdir())
