from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from gmlfm.data.attributes import AttributeTable
from gmlfm.data.prepared import PreparedData, padded, unpadded
from gmlfm.errors import DataError


def test_a_damaged_prepared_folder_is_refused(small_prepared: PreparedData, tmp_path: Path) -> None:
    shutil.copytree(small_prepared.folder, tmp_path / "out")
    prepared = PreparedData(tmp_path / "out")
    (tmp_path / "out" / "interactions" / "00000.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match="missing or damaged"):
        prepared.shard(0)
    path = tmp_path / "out" / "prepared.json"
    path.write_text(path.read_text().replace('"format": 2', '"format": 9'))
    with pytest.raises(DataError, match="format 9, this version reads 2"):
        PreparedData(tmp_path / "out")
    path.write_text("{")
    with pytest.raises(DataError, match="cannot be understood"):
        PreparedData(tmp_path / "out")
    with pytest.raises(DataError, match="is no prepared folder"):
        PreparedData(tmp_path)


def test_padding_and_lists_are_two_forms_of_the_same() -> None:
    table = AttributeTable(np.array([[3, 4], [5, 0], [0, 0]], np.int32), np.array([[1, 0.5], [2, 0], [0, 0]], np.float32))
    rows, x = unpadded(table)
    assert rows.to_list() == [[3, 4], [5], []]
    repadded = padded(rows, x, 2)
    assert np.array_equal(repadded.ids, table.ids)
    assert np.array_equal(repadded.values, table.values)
