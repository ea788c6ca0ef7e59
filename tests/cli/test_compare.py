from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gmlfm.cli import main


def test_a_table_and_a_picture_are_written(market: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["compare", market, "--models", "popularity, item-knn", "--trials", "1", "--seeds", "1", "--threads", "1"]
    out = tmp_path / "study"
    assert main([*command, "--out", str(out), "--json"]) == 0
    comparison = json.loads(capsys.readouterr().out)
    assert {row["model"] for row in comparison["rows"]} == {"popularity", "item-knn"}
    assert "popularity" in (out / "table.md").read_text()
    assert "<svg" in (out / "table.html").read_text()
    picture = (out / "picture.svg").read_text()
    ElementTree.fromstring(picture)
    assert main([*command, "--out", str(out)]) == 0
    assert "95 % interval" in capsys.readouterr().out
    assert (out / "picture.svg").read_text() == picture
