from __future__ import annotations

import resource
from pathlib import Path

import pytest

from gmlfm.errors import DataError
from gmlfm.tuning.journal import Journal


def test_a_full_disk_leaves_no_half_line(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "study.journal")
    journal.append_logs([{"n": 1}])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20, limits[1]))
    try:
        with pytest.raises(DataError, match=r"study\.journal could not be written"):
            journal.append_logs([{"n": 2, "text": "x" * 50}])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(journal.read_logs(0)) == [{"n": 1}]
    journal.append_logs([{"n": 3}])
    assert list(Journal(tmp_path / "study.journal").read_logs(0)) == [{"n": 1}, {"n": 3}]
    assert [path.name for path in tmp_path.iterdir()] == ["study.journal"]
