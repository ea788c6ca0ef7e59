from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from gmlfm import Dataset, Recommender
from tests.contracts.checkerboard import checkerboard

QUICK: dict[str, Any] = {"k": 8, "epochs": 6, "batch_size": 64, "lr": 0.02, "n_negatives": 2, "threads": 1}


@pytest.fixture(scope="session")
def board() -> Dataset:
    return checkerboard()


@pytest.fixture(scope="session")
def run_folder(board: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of gml-fm with its checkpoints. Read-only."""
    folder = tmp_path_factory.mktemp("recommender") / "run"
    Recommender(**QUICK).fit(board, out=folder)
    return folder


@pytest.fixture(scope="session")
def trained(run_folder: Path) -> Recommender:
    """That run. Read-only."""
    return Recommender.load(run_folder)


@pytest.fixture
def own_folder(run_folder: Path, tmp_path: Path) -> Path:
    """A copy of the run's folder that a test may change."""
    return Path(shutil.copytree(run_folder, tmp_path / "run"))


@pytest.fixture
def own_run(own_folder: Path) -> Recommender:
    """A run that a test may change."""
    return Recommender.load(own_folder)


@pytest.fixture(scope="session")
def context_run() -> Recommender:
    """A run of data with a context field, `channel`. Read-only."""
    rows = [(f"u{n % 10}", f"i{(n * 7) % 12}", ("web", "app")[n % 2]) for n in range(120)]
    table = pl.DataFrame(rows, schema=["u", "i", "channel"], orient="row")
    schema = {"interactions": {"user": "u", "item": "i", "context": {"channel": "category"}}}
    return Recommender(**{**QUICK, "epochs": 3}).fit(Dataset.from_tables(table, schema=schema))
