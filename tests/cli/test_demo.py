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
    assert rates["popularity"] < rates["not sold yet first, nothing more"] < rates["the oracle, who knows every taste"]
    assert rates["popularity"] < rates["the oracle, who knows every taste"] - 0.2
    assert max(rates.values()) == rates["the oracle, who knows the stock, too"]
    for heading in ("The data", "Training gml-fm", "Recommendations", "Somebody new", "Why the first"):
        assert heading in printed.err
    page = Path(result["report"]).read_text()
    assert page.count("<svg") == 4
    for drawing in page.split("<svg")[1:]:
        ElementTree.fromstring("<svg" + drawing.split("</svg>")[0] + "</svg>")
