from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gmlfm import Recommender
from gmlfm.cli import main


def test_terms_sum_to_the_score(run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    best, second = Recommender.load(run).recommend(["b0000003"], 2).to_dicts()
    command = ["explain", run, "--user", "b0000003", "--item", best["item"]]
    capsys.readouterr()
    assert main([*command, "--json"]) == 0
    explanation = json.loads(capsys.readouterr().out)
    assert explanation["score"] == pytest.approx(best["score"], abs=1e-5)
    assert sum(term["value"] for term in explanation["terms"]) == pytest.approx(explanation["score"])
    assert {"kind", "fields", "attributes", "value"} <= set(explanation["terms"][0])
    grouped = {tuple(group["fields"]): group["value"] for group in explanation["by_fields"]}
    assert sum(grouped.values()) == pytest.approx(explanation["score"])
    assert grouped[()] == pytest.approx(next(term["value"] for term in explanation["terms"] if term["kind"] == "global"))
    assert main([*command, "--against", second["item"], "--json"]) == 0
    contrast = json.loads(capsys.readouterr().out)
    assert contrast["by_fields"] == explanation["by_fields"]
    difference = sum(group["value"] for group in contrast["against"])
    assert difference == pytest.approx(best["score"] - second["score"], abs=1e-5)
    assert main([*command, "--against", second["item"], "--picture", str(tmp_path / "why.svg")]) == 0
    shown = capsys.readouterr().out
    assert "against" in shown
    assert "weight" in shown
    ElementTree.fromstring((tmp_path / "why.svg").read_text())
    assert main([*command, "--against", "mean"]) == 0
    assert "the catalogue's mean" in capsys.readouterr().out


def test_context_changes_the_explanation(context_run: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["explain", context_run, "--user", "1", "--item", "p3", "--against", "p4", "--json"]
    results = []
    for daytime in ("morning", "evening"):
        capsys.readouterr()
        assert main([*command, "--context", f"daytime={daytime}"]) == 0
        results.append(json.loads(capsys.readouterr().out))
        attributes = {attribute for term in results[-1]["terms"] for attribute in term["attributes"]}
        assert f"context.daytime = {daytime}" in attributes
    assert results[0]["score"] != results[1]["score"]
    assert results[0]["against"] != results[1]["against"]


def test_wrong_use_is_one_sentence(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    for more, message in (([], "is not in the catalogue"), (["-n", "0"], "-n is 0; expected 1 or more")):
        assert main(["explain", run, "--user", "b0000003", "--item", "nothing", *more]) == 2
        assert message in capsys.readouterr().err


def test_a_user_of_whom_nothing_is_known(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    item = Recommender.load(run).fitted.data.items.ids[0]
    assert main(["explain", run, "--user", "nobody", "--item", item]) == 0
    assert "nothing is known of this user" in capsys.readouterr().out
