from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gmlfm import load_dataset
from gmlfm.cli import main
from gmlfm.data.prepared import PreparedData
from tests.cli.conftest import QUICK


def test_every_field_is_measured(run: str, market: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["attributes", run, "--retrain", "--json", "--picture", str(tmp_path / "fields.svg")]) == 0
    result = json.loads(capsys.readouterr().out)
    schema = load_dataset(market).schema
    names = {field.name for part in ("user", "item") for field in schema.fields_of(part)}  # type: ignore[arg-type]
    assert {row["field"] for row in result["fields"]} == names
    assert all(row["without"] is not None for row in result["fields"])
    assert result["pairs"][0]["spread"] >= result["pairs"][-1]["spread"]
    ElementTree.fromstring((tmp_path / "fields.svg").read_text())
    assert main(["attributes", run]) == 0
    assert "NDCG@10 lost on validation" in capsys.readouterr().out


def test_a_run_of_a_prepared_folder_says_how_to_retrain(
    small_prepared: PreparedData, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "run")
    assert main(["train", str(small_prepared.folder), "--out", out, *QUICK]) == 0
    assert main(["attributes", out, "--json"]) == 0
    capsys.readouterr()
    assert main(["attributes", out, "--retrain"]) == 2
    printed = capsys.readouterr().err
    assert "leave --retrain out, or train on the tables themselves (gmlfm train DATA --out RUN)" in " ".join(printed.split())
    assert "Traceback" not in printed
