from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from gmlfm import Dataset, Recommender
from tests.contracts.checkerboard import checkerboard

QUICK: dict[str, Any] = {"k": 8, "epochs": 6, "batch_size": 64, "lr": 0.02, "n_negatives": 2, "threads": 1}

WITH_HISTORY: dict[str, Any] = {"k": 4, "epochs": 2, "lr": 0.02, "v_scale": 0.3, "threads": 1}


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


@pytest.fixture(scope="session")
def habits() -> Dataset:
    """20 users' 9 rows each, in time, on a channel: of 12 items, which come again; attributes of each kind, some missing. Two
    items share a title, the last ones have no row, and i5 has no title."""
    rng = np.random.default_rng(0)
    rows = [
        (f"u{user}", f"i{item}", time, ("web", "app")[(user + time) % 2], float(1 + item % 5))
        for user in range(20)
        for time, item in enumerate(rng.integers(0, 12, 9).tolist())
    ]
    interactions = pl.DataFrame(rows, schema=["user", "item", "time", "channel", "stars"], orient="row")
    ages = [None if n % 5 == 0 else float(20 + n) for n in range(20)]
    users = pl.DataFrame({"user": [f"u{n}" for n in range(20)], "age": ages})
    items = pl.DataFrame(
        {
            "item": [f"i{n}" for n in range(14)],
            "name": [None if n == 5 else f"Film {n // 2}" for n in range(14)],
            "colour": [None if n % 4 == 3 else ("red", "blue")[n % 2] for n in range(14)],
            "price": [None if n % 6 == 1 else 1.5 * n for n in range(14)],
            "tags": [None if n % 5 == 4 else [["x"], ["x", "y"], []][n % 3] for n in range(14)],
        }
    )
    schema = {
        "name": "habits",
        "interactions": {
            "user": "user",
            "item": "item",
            "time": "time",
            "label": "stars",
            "repeats": "keep",
            "context": {"channel": "category"},
        },
        "users": {"id": "user", "fields": {"age": "number"}},
        "items": {
            "id": "item",
            "title": "name",
            "fields": {"colour": "category", "price": "number", "tags": {"kind": "set"}},
        },
    }
    return Dataset.from_tables(interactions, users, items, schema=schema)


@pytest.fixture(scope="session")
def habit_run(habits: Dataset) -> Recommender:
    """A run of fm on them that reads what users did before. Read-only."""
    return Recommender("fm", history="last,recent,past", **WITH_HISTORY).fit(habits)
