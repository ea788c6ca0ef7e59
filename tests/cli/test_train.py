from __future__ import annotations

import json
from pathlib import Path

import pytest

from gmlfm.cli import main
from tests.cli.conftest import QUICK


def test_a_run_folder_is_written(market: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "run")
    assert main(["train", market, "--out", out, *QUICK, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["run"], result["best_epoch"]) == (out, 1)
    assert {"validation", "data_hash", "split_hash"} <= set(result)
    assert main(["train", market, "--out", out, *QUICK, "--seed", "1"]) == 0
    shown = capsys.readouterr().out
    assert "Best epoch 1: validation hr@10" in shown
    assert "(no refit)" in shown
    assert f"Next: gmlfm evaluate {out}" in shown


@pytest.mark.parametrize("name", ["device=cuda", "task=rating", "model=fm", "preset=paper"])
def test_what_is_an_option_of_its_own_is_no_setting(name: str, market: str, capsys: pytest.CaptureFixture[str]) -> None:
    option, value = name.split("=")
    assert main(["train", market, "--out", "run", "--set", name]) == 2
    assert f"{option} is an option of its own; use --{option} {value}." in capsys.readouterr().err


def test_help_names_where_settings_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    assert "Settings: gmlfm settings MODEL" in capsys.readouterr().out
