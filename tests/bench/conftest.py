from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gmlfm.bench.contenders import Task


@pytest.fixture
def make_task(small_market: Path) -> Callable[..., Task]:
    """Tasks of small steps on the small market."""

    def make(way: str = "ours", model: str = "gml-fm") -> Task:
        return Task(str(small_market), None, model, way, k=6, batch=60, threads=1, device="cpu")

    return make
