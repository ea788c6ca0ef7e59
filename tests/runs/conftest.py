from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gmlfm import Recommender
from tests.contracts.checkerboard import checkerboard


@pytest.fixture(scope="package")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small run of gml-fm. Read-only."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    Recommender(k=8, epochs=1, threads=1).fit(checkerboard(), out=folder)
    return folder


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    """A copy of it that a test may change."""
    return Path(shutil.copytree(saved, tmp_path / "r"))
