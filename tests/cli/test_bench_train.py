from __future__ import annotations

import json
from typing import Any

import pytest

from gmlfm.bench import training
from gmlfm.cli import main


def test_settings_reach_the_measurement(
    market: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measure(task: Any, against: list[str], rounds: int, seconds: float) -> dict[str, Any]:
        return {"k": task.k, "batch": task.batch, "threads": task.threads, "against": against, "rounds_": rounds}

    monkeypatch.setattr(training, "measure", measure)
    command = ["bench", "train", market, "--set", "k=4", "--set", "batch_size=50", "--threads", "1", "--against", "eager"]
    assert main([*command, "--rounds", "2", "--json"]) == 0
    measured = json.loads(capsys.readouterr().out)
    assert measured == {"k": 4, "batch": 50, "threads": 1, "against": ["eager"], "rounds_": 2}
    assert main(["bench", "train", market, "--model", "gml-fm-unit", "--threads", "1"]) == 0
    shown = capsys.readouterr().out.split()
    assert shown[shown.index("k") + 1] == "64"
    assert shown[shown.index("batch") + 1] == "4096"


def test_until_a_result_is_reached(market: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["bench", "train", market, "--set", "k=4", "--set", "batch_size=64", "--set", "lr=0.02", "--threads", "1"]
    assert main([*command, "--until", "hr@10=0.001", "--json"]) == 0
    measured = json.loads(capsys.readouterr().out)
    assert (measured["reached"], measured["k"], measured["batch_size"], measured["lr"]) == (True, 4, 64, 0.02)
    assert len(measured["epochs"]) == measured["epochs"][-1]["epoch"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "k=0"], "k is 0; expected a whole number of 1 or more"),
        (["--set", "batch_size=auto"], "batch_size is auto; expected a whole number of 1 or more"),
        (["--model", "gml-fm-unit", "--set", "lr=0.1"], "'lr' goes with --until only"),
        (["--rounds", "0"], "--rounds is 0; expected 1 or more"),
        (["--seconds", "-1"], "--seconds is -1.0; expected a number above 0"),
        (["--threads", "0"], "--threads is 0; expected 1 or more"),
        (["--until", "nonsense"], "--until takes METRIC=X"),
        (["--batch", "50"], "unknown option '--batch'"),
    ],
)
def test_wrong_use_is_one_sentence(market: str, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "train", market, *arguments]) == 2
    printed = capsys.readouterr().err
    assert message in printed
    assert printed.count("\n") == 1
