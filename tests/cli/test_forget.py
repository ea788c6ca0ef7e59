from __future__ import annotations

import json
from pathlib import Path

import pytest

from gmlfm import Recommender
from gmlfm.cli import main


def test_a_forgotten_user_is_unknown_to_the_run(own_run: str, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["forget", own_run, "--user", "b0000003", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"run": own_run, "forgotten": "b0000003"}
    assert not Recommender.load(own_run).recommend(["b0000003"], 1)["known"][0]
    assert not (Path(own_run) / "checkpoints").exists()
    assert main(["forget", own_run, "--user", "b0000003"]) == 2
    printed = capsys.readouterr().err
    assert "the user 'b0000003' is unknown already" in printed
    assert printed.count("\n") == 1
    assert main(["forget", own_run, "--user", "b0000004"]) == 0
    assert "The user 'b0000004' is gone" in capsys.readouterr().out
