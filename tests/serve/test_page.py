"""The page at / and its files."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pytest
from fastapi.testclient import TestClient

import gmlfm.serve
from gmlfm import Dataset, Recommender
from gmlfm.serve import create_app

STATIC = Path(gmlfm.serve.__file__).parent / "static"
FILES = sorted(path for path in STATIC.rglob("*") if path.is_file())


def test_the_page_holds_no_script_and_no_style_of_its_own(reader: TestClient) -> None:
    answer = reader.get("/")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/html")
    assert re.findall(r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\bon\w+=|javascript:", answer.text) == []
    policy = answer.headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "script-src" not in policy  # so that default-src holds for scripts


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_its_files_are_served_and_name_nothing_elsewhere(reader: TestClient, path: Path) -> None:
    answer = reader.get(f"/static/{path.relative_to(STATIC).as_posix()}")
    assert answer.status_code == 200
    assert answer.content == path.read_bytes()
    text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
    assert re.findall(r"https?://|url\(", text) == []


@pytest.mark.parametrize("path", [path for path in FILES if path.suffix == ".js"], ids=lambda path: path.name)
def test_no_script_makes_markup_of_texts(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text) == []
    assert len(text.splitlines()) <= 400


def test_each_import_of_a_script_is_there() -> None:
    for path in FILES:
        for name in re.findall(r"""(?:from|import\()\s*"(\.[^"]+)\"""", path.read_text(encoding="utf-8")):
            assert (path.parent / name).is_file(), f"{path.name} imports {name}"


def test_its_files_are_asked_about_again(reader: TestClient) -> None:
    """A browser may keep them, but must not put old modules beside new ones."""
    answer = reader.get("/static/main.js")
    assert answer.headers["cache-control"] == "no-cache"
    again = reader.get("/static/main.js", headers={"If-None-Match": answer.headers["etag"]})
    assert again.status_code == 304
    assert again.headers["cache-control"] == "no-cache"
    assert reader.get("/static/none.js").headers["cache-control"] == "no-cache"
    assert reader.get("/static/plotly.min.js").headers["cache-control"] == "public, max-age=86400"


def test_plotly_comes_from_its_wheel(reader: TestClient) -> None:
    answer = reader.get("/static/plotly.min.js")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/javascript")
    assert b"plotly.js" in answer.content[:500]


def test_without_plotly_the_answer_is_a_sentence(reader: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gmlfm.serve.app.find_spec", lambda name: None)
    answer = reader.get("/static/plotly.min.js")
    assert answer.status_code == 404
    assert "plotly is not installed" in answer.json()["detail"]


@pytest.mark.parametrize(
    "path", ["/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/static/views", "/static/none.js"]
)
def test_nothing_else_is_served(reader: TestClient, path: str) -> None:
    assert reader.get(path).status_code == 404


def test_an_id_with_a_slash_is_found(tmp_path: Path) -> None:
    rows = [(f"u/{user}", f"i/{item}") for user in range(6) for item in range(user % 3, 8)]
    data = Dataset.from_tables(pl.DataFrame(rows, schema=["user", "item"], orient="row"))
    with TestClient(create_app(Recommender("popularity").fit(data)), "http://127.0.0.1") as client:
        assert client.get("/users/u%2F3").json()["user"] == "u/3"
        assert client.get("/items/i%2F7").json()["item"] == "i/7"
