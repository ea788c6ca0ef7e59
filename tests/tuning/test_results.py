"""What a comparison keeps of each method."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from gmlfm.errors import DataError
from gmlfm.tuning.results import Results
from gmlfm.tuning.study import Tuned

MODEL = "my_package.my_module:MyModel"
TUNED = Tuned(MODEL, "topn", None, {"lr": 0.1}, {"k": 8}, {"ndcg@10": 0.5}, 3, 1, 12.5, ["lr"])


def test_what_is_written_is_read(tmp_path: Path) -> None:
    results = Results(tmp_path)
    assert results.chosen(MODEL) is None
    assert results.choose(TUNED) == TUNED == results.chosen(MODEL) == results.tested(MODEL)
    assert not results.has(MODEL, 0)
    results.add(MODEL, 0, {"ndcg@10": np.array([0.0, 1.0])}, 7.5)
    assert results.has(MODEL, 0)
    assert results.seconds(MODEL, 0) == 7.5
    np.testing.assert_array_equal(results.queries(MODEL, 0)["ndcg@10"], [0.0, 1.0])
    names = sorted(path.name for path in (tmp_path / "results").iterdir())
    base = "my_package.my_module.MyModel"  # no colon, which some file systems refuse
    assert names == [f"{base}-0.json", f"{base}-0.parquet", f"{base}.json"]


def test_what_is_missing_or_damaged_is_made_again_or_named(tmp_path: Path) -> None:
    results = Results(tmp_path)
    with pytest.raises(DataError, match=r"MyModel.json is missing; run the comparison again"):
        results.tested(MODEL)
    results.choose(TUNED)
    (tmp_path / "results" / "my_package.my_module.MyModel.json").write_text("{")
    with pytest.raises(DataError, match=r"MyModel.json is damaged"):
        results.chosen(MODEL)
    for suffix in ("json", "parquet"):
        results.add(MODEL, 0, {"ndcg@10": np.array([1.0])}, 1.0)
        (tmp_path / "results" / f"my_package.my_module.MyModel-0.{suffix}").write_bytes(b"PAR1")
        assert not results.has(MODEL, 0)
        with pytest.raises(DataError, match=r"is missing or damaged .*; run the comparison again"):
            results.seconds(MODEL, 0) if suffix == "json" else results.queries(MODEL, 0)


def test_a_result_is_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise pl.exceptions.ComputeError("No space left on device")

    results = Results(tmp_path)
    results.add(MODEL, 0, {"ndcg@10": np.array([1.0])}, 1.0)
    monkeypatch.setattr(pl.DataFrame, "write_parquet", full)
    with pytest.raises(DataError, match=r"-0\.parquet could not be written \(No space left on device\)"):
        results.add(MODEL, 0, {"ndcg@10": np.array([0.0])}, 1.0)
    np.testing.assert_array_equal(results.queries(MODEL, 0)["ndcg@10"], [1.0])
    assert len(list((tmp_path / "results").iterdir())) == 2
