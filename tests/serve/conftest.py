from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from gmlfm import Recommender, load_dataset
from gmlfm.serve import ServeOptions, create_app

HOME = "http://127.0.0.1"


@pytest.fixture(scope="session")
def run_folder(small_market: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on the market that reads what users did before. Read-only."""
    folder = tmp_path_factory.mktemp("serve") / "first"
    Recommender("gml-fm", k=4, epochs=1, threads=1).fit(load_dataset(str(small_market)), out=folder)
    return folder


@pytest.fixture(scope="session")
def other_folder(small_market: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another run on the same data, whose scores differ. Read-only."""
    folder = tmp_path_factory.mktemp("serve") / "other"
    Recommender("fm", k=4, epochs=1, threads=1, seed=5).fit(load_dataset(str(small_market)), out=folder)
    return folder


@pytest.fixture(scope="session")
def reader(run_folder: Path) -> Iterator[TestClient]:
    """A client of an application over that run, for questions that change nothing."""
    with client_of(run_folder) as client:
        yield client


@pytest.fixture
def own_folder(run_folder: Path, tmp_path: Path) -> Path:
    """A copy of the run's folder that a test may change."""
    return Path(shutil.copytree(run_folder, tmp_path / "first"))


@pytest.fixture
def client(own_folder: Path) -> Iterator[TestClient]:
    """A client of an application of its own, over a copy of the run."""
    with client_of(own_folder) as client:
        yield client


@pytest.fixture(scope="session")
def user(reader: TestClient) -> str:
    return str(reader.get("/users?limit=1").json()["users"][0]["user"])


@pytest.fixture(scope="session")
def items(reader: TestClient) -> list[str]:
    """The commonest items of the catalogue."""
    return [item["item"] for item in reader.get("/items?limit=8").json()["items"]]


def client_of(folder: Path, **options: object) -> TestClient:
    return TestClient(create_app(folder, ServeOptions(log="none", **options)), HOME)  # type: ignore[arg-type]
