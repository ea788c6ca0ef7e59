from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gmlfm.bench.contenders import Task


@pytest.fixture
def make_task(small_market: Path) -> Callable[..., Task]:
    """Tasks of small steps on the small market."""

    def make(way: str = "ours", model: str = "gml-fm-unit") -> Task:
        return Task(str(small_market), None, model, way, k=6, batch=60, threads=1, device="cpu")

    return make


@pytest.fixture(scope="session")
def timed_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of 50 users with 12 rows each in time, of items that could always be had. Read-only."""
    folder, rng = tmp_path_factory.mktemp("timed"), np.random.default_rng(0)
    lines = ["user,item,time"]
    for user in range(50):
        items = (user + rng.permutation(60)[:12]) % 60
        lines += [f"u{user},i{item},{100 + place}" for place, item in enumerate(items)]
    (folder / "interactions.csv").write_text("\n".join(lines) + "\n")
    (folder / "dataset.toml").write_text(
        '[interactions]\npath = "interactions.csv"\nuser = "user"\nitem = "item"\ntime = "time"\n'
    )
    return folder
