from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gmlfm.cli import main
from gmlfm.cli.compare import show
from gmlfm.cli.output import console_for
from gmlfm.tuning import Comparison
from gmlfm.tuning.rows import Row


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


def test_the_tables_are_readable_on_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings: dict[str, object] = {"cold_start_rate": 0.1, "v_scale": 0.01, "lr": 0.0299, "loss": "softmax"}
    row = Row(
        model="gml-fm-dnn",
        means={"ndcg@10": 0.5, "hr@10": 0.7},
        low=0.49,
        high=0.51,
        seed_spread=0.001,
        against="popularity",
        difference=-0.0262,
        p_value=1e-5,
        validation=0.53,
        trials=20,
        failed=2,
        seconds=6140.0,
        final_seconds=2000.0,
        at_border=("cold_start_rate", "v_scale", "lr"),
        settings=settings,
        fixed={"epochs": 12, "batch_size": 4096},
    )
    rows = tuple(replace(row, model=model) for model in ("gml-fm-dnn", "popularity", "my_package.my_module:MyModel"))
    comparison = Comparison(
        *("bazaar", "topn", "global-time", "full", "ndcg@10", "1 trials a method", 60.0, 3, True, False, rows, {"fm": "no [b]"})
    )
    monkeypatch.setenv("COLUMNS", "80")
    show(comparison, console_for())
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    for whole in ("0.4900 to 0.5100", "gml-fm-dnn", "popularity", "-0.0262***", "(popularity)", "4140 + 2000", "(2 failed)"):
        assert whole in shown
    assert "cold_start_rate=0.1," in shown  # no setting is cut
    assert "1 trial a method" in " ".join(shown.split())
    assert "fm could not take part: no [b]" in shown
    assert len(shown.splitlines()) < 50
