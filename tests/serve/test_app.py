from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gmlfm.errors import DataError
from gmlfm.serve import ServeOptions, create_app
from tests.serve.conftest import client_of


def test_folders_of_one_name_are_numbered(own_folder: Path, tmp_path: Path) -> None:
    others = [Path(shutil.copytree(own_folder, tmp_path / name / "first")) for name in ("a", "b")]
    with client_of([own_folder, *others]) as client:  # type: ignore[arg-type]
        assert [run["name"] for run in client.get("/runs").json()["runs"]] == ["first", "first-2", "first-3"]


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is no run"):
        create_app(tmp_path, ServeOptions())


def test_the_page_is_there(run_folder: Path) -> None:
    with client_of(run_folder) as client:
        response = client.get("/")
        assert response.headers["content-type"].startswith("text/html")
        assert response.status_code == 200
        assert client.get("/static/index.html").text == response.text


def test_an_app_over_a_folder_that_was_saved_elsewhere_counts_both(own_folder: Path, items: list[str]) -> None:
    """Two applications over one folder, as two workers are."""
    with client_of(own_folder) as here, client_of(own_folder) as there:
        for number, client in enumerate((here, there, here)):
            client.post("/events", json={"events": [{"user": "newcomer", "item": items[number]}]})
        for client in (here, there):
            history = client.get("/users/newcomer").json()["history"]
            assert [row["item"] for row in history] == [items[2], items[1], items[0]]
        assert there.post("/items", json={"items": [{"item": "new"}]}).status_code == 200
        assert here.get("/items/new").status_code == 404
        assert here.post("/reload").json()["swapped"] == ["first"]
        assert here.get("/items/new").status_code == 200
