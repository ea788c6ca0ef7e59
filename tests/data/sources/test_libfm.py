from __future__ import annotations

from pathlib import Path

import pytest

from gmlfm import load_dataset
from gmlfm.data.sources.fetch import get_dataset
from gmlfm.data.sources.libfm import read_libfm
from gmlfm.errors import DataError


def test_libfm_files(tmp_path: Path) -> None:
    (tmp_path / "a.libfm").write_text("1 0:1 5:1 9:1\n-1 0:1 6:1 8:1 9:1  # a comment\n\n1 qid:3 1:1 5:1\n")
    rows = read_libfm(tmp_path / "a.libfm")
    assert rows.labels.tolist() == [1, -1, 1]
    assert rows.starts.tolist() == [0, 3, 7, 9]
    get_dataset("libfm", tmp_path, files=[tmp_path / "a.libfm"], out=tmp_path / "a")
    data = load_dataset(tmp_path / "a")
    assert data.users.ids.to_list() == ["0", "1"]
    assert data.context["attributes"].to_list() == [["9"], ["8", "9"], None]
    (tmp_path / "b.libfm").write_text("1 0:1 5:1\n1 0:x\n")
    with pytest.raises(DataError, match="line 2 is not 'label index:value"):
        read_libfm(tmp_path / "b.libfm")
    (tmp_path / "c.libfm").write_text("1 0:0.5 5:1\n")
    with pytest.raises(DataError, match="values other than 1"):
        get_dataset("libfm", tmp_path, files=[tmp_path / "c.libfm"])
    (tmp_path / "d.libfm").write_text("1 0:1 5:inf\n")
    with pytest.raises(DataError, match="not finite"):
        read_libfm(tmp_path / "d.libfm")
    (tmp_path / "big.libfm").write_text(f"1 {2**63}:1 5:1\n")
    with pytest.raises(DataError, match="too large"):
        read_libfm(tmp_path / "big.libfm")


def test_an_odd_file_name_still_names_a_dataset(tmp_path: Path) -> None:
    (tmp_path / 'we"ird.libfm').write_text("1 0:1 5:1\n")
    get_dataset("libfm", tmp_path, files=[tmp_path / 'we"ird.libfm'])
    assert load_dataset(tmp_path / "libfm").name == 'we"ird'
