from __future__ import annotations

import multiprocessing
import os
import signal
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from gmlfm.errors import DataError
from gmlfm.locking import LockedError
from gmlfm.runs.locking import is_being_trained, training_lock, writers_lock


def _hold(folder: Path, connection: Connection) -> None:
    with writers_lock(folder), training_lock(folder):
        connection.send("held")
        connection.recv()


def test_another_process_is_kept_out_and_named(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_hold, args=(tmp_path, theirs))
    process.start()
    assert ours.recv() == "held"
    assert is_being_trained(tmp_path)
    with pytest.raises(LockedError, match=rf"is being written by process {process.pid} on .* since .* UTC\); try again"):
        with writers_lock(tmp_path, seconds=0.0):
            pass
    with pytest.raises(LockedError, match=f"is being trained in by process {process.pid}"), training_lock(tmp_path):
        pass
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    with writers_lock(tmp_path, seconds=0.0), training_lock(tmp_path):  # the system took it back
        assert is_being_trained(tmp_path)
    assert not is_being_trained(tmp_path)


def test_a_lock_whose_file_was_removed_keeps_nobody_out(tmp_path: Path) -> None:
    with writers_lock(tmp_path):
        (tmp_path / ".lock").unlink()
        with writers_lock(tmp_path, seconds=0.0):
            pass


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(DataError, match="could not be written"), writers_lock(tmp_path / "file"):
        pass
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / ".lock").symlink_to(tmp_path / "file")
    with pytest.raises(DataError, match="could not be written"), writers_lock(tmp_path / "folder"):
        pass
    assert (tmp_path / "file").read_text() == "x"
