from __future__ import annotations

import json
from pathlib import Path

import pytest

from gmlfm.cli import main


def test_the_best_settings_are_written(market: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["tune", market, "--model", "item-knn", "--trials", "2", "--threads", "1", "--out", str(tmp_path / "study")]
    assert main([*command, "--json"]) == 0
    tuned = json.loads(capsys.readouterr().out)
    assert (tuned["model"], tuned["trials"]) == ("item-knn", 2)
    written = (tmp_path / "study" / "best.toml").read_text()
    assert all(f"{name} = " in written for name in tuned["settings"])
    assert main(command) == 0
    assert "Next: gmlfm train" in capsys.readouterr().out


def test_trials_or_seconds(market: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", market, "--trials", "1", "--seconds", "1", "--out", "study"]) == 2
    assert "give --trials or --seconds, not both" in capsys.readouterr().err
