from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from gmlfm.data.sources.archives import check_archive
from gmlfm.errors import DataError


def test_a_damaged_archive_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("m", b"some content that will be changed")
    raw = (tmp_path / "a.zip").read_bytes()
    (tmp_path / "a.zip").write_bytes(raw.replace(b"some", b"sOme", 1))
    with pytest.raises(DataError, match="the member 'm' is damaged"):
        check_archive(tmp_path / "a.zip", ("m",))
    with pytest.raises(DataError, match="the member 'm' is damaged"):
        check_archive(tmp_path / "a.zip")
    (tmp_path / "a.zip").write_bytes(raw[:20])
    with pytest.raises(DataError, match="is no zip archive or is damaged"):
        check_archive(tmp_path / "a.zip", ("m",))
