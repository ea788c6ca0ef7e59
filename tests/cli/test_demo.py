from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gmlfm.cli import main


def test_the_demo_goes_from_the_market_to_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--users", "500", "--epochs", "3", "--out", str(tmp_path / "demo"), "--json"]) == 0
    printed = capsys.readouterr()
    result = json.loads(printed.out)
    rates = {name: metrics["hr@10"] for name, metrics in result["results"].items()}
    assert list(rates) == ["chance", "popularity", "gml-fm-unit", "gml-fm, with histories", "the oracle, who knows every taste"]
    assert result["results"]["chance"] == pytest.approx({"hr@10": 0.1, "ndcg@10": 0.0454}, abs=1e-4)
    # What is ranked could be had and was never sold, so that popularity cannot tell one listing from another.
    assert rates["popularity"] == pytest.approx(0.1, abs=0.02)
    oracle = rates["the oracle, who knows every taste"]
    assert rates["chance"] + 0.05 < rates["gml-fm-unit"] < oracle - 0.2
    assert rates["gml-fm-unit"] < rates["gml-fm, with histories"] < oracle - 0.1
    for heading in (
        "The data",
        "Training",
        "Recommendations",
        "Somebody new",
        "Why the first",
        "Most of it after",
        "The same buyer",
    ):
        assert heading in printed.err
    assert printed.err.rstrip().endswith(f"gmlfm serve {tmp_path / 'demo'}")
    page = Path(result["report"]).read_text()
    assert page.count("<svg") == 4
    for drawing in page.split("<svg")[1:]:
        ElementTree.fromstring("<svg" + drawing.split("</svg>")[0] + "</svg>")
