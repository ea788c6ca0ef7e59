from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gmlfm import Recommender, load_dataset
from gmlfm.cli import main
from gmlfm.cli.demo import _withdraw_earlier


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


def test_what_an_earlier_demo_observed_is_gone_and_nothing_else(market: str, tmp_path: Path) -> None:
    data = load_dataset(market)
    model = Recommender("popularity").fit(data, out=tmp_path / "demo")
    buyer, other = data.users.ids[0], data.users.ids[1]
    items = data.items.ids.to_list()
    rows = [(buyer, items[0], None), (buyer, items[1], 5), (other, items[0], None)]
    with pytest.warns(UserWarning, match="does not read what users did before"):
        model.observe([{"user": user, "item": item, "time": time} for user, item, time in rows])
    _withdraw_earlier(model, buyer)
    for run in (model, Recommender.load(tmp_path / "demo")):
        assert sorted(row[:3] for row in run.observed.rows()) == sorted(rows[1:], key=lambda row: row[:2])
    _withdraw_earlier(model, buyer)
    assert model.observed.n == 2
