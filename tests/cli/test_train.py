from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from gmlfm.cli import main
from tests.cli.conftest import QUICK

FOUR_EPOCHS = ["--set", "k=8", "--set", "epochs=4", "--set", "patience=9", "--threads", "1", "--json"]
# The n-th call of a function, among those whose arguments hold a text, kills the process, as a power cut would.
KILLED = """
import os, signal, sys
from importlib import import_module
from gmlfm.cli import main
module, name, text, count, arguments = *sys.argv[1:4], int(sys.argv[4]), sys.argv[5:]
owner = import_module(module.partition(":")[0])
owner = getattr(owner, module.partition(":")[2]) if ":" in module else owner
function, calls = getattr(owner, name), []
def counted(*positional, **named):
    calls.extend([name] if text in repr(positional) else [])
    if len(calls) == count:
        os.kill(os.getpid(), signal.SIGKILL)
    return function(*positional, **named)
setattr(owner, name, counted)
main(arguments)
"""


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
    assert "a model's own: gmlfm settings MODEL" in capsys.readouterr().out


def test_the_commands_from_training_to_recommendations(market: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(tmp_path / "run")
    assert main(["train", market, "--out", run, *FOUR_EPOCHS]) == 0
    trained = json.loads(capsys.readouterr().out)
    assert 1 <= trained["best_epoch"] <= 4
    lines = (tmp_path / "run" / "curve.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == [1, 2, 3, 4]
    assert main(["evaluate", run, "--protocol", "sampled", "--json"]) == 0
    metrics = json.loads(capsys.readouterr().out)
    assert (metrics["protocol"], metrics["split_hash"]) == ("sampled", trained["split_hash"])
    assert 0 < metrics["hr@10"] < 1
    assert main(["recommend", run, "--attributes", "age=20-29,region=Osaka", "-n", "2", "--filter", "genre = 'Concert'"]) == 0
    assert main(["recommend", run, "--all", "--out", str(tmp_path / "recs.parquet"), "-n", "5", "--json"]) == 0
    assert pl.read_parquet(tmp_path / "recs.parquet").height == 120 * 5
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    assert main(["train", market, "--out", run, "--resume", "--seed", "5"]) == 2
    assert "begun with other data or settings" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("module", "function", "text", "count"),
    [
        ("gmlfm.cli.train:TrainingBar", "on_step", "", 1),  # before the first checkpoint
        ("gmlfm.cli.train:TrainingBar", "on_step", "", 3),  # in the middle of an epoch
        ("gmlfm.fitting.plan", "save_checkpoint", "", 3),  # the curve has an epoch more than the checkpoints
        ("os", "replace", "epoch-00002.json", 1),  # weights without their checksum
        ("gmlfm.recommender.core", "save_run", "", 1),  # after the last epoch
    ],
)
def test_killed_and_resumed_it_ends_with_the_same_weights(
    module: str, function: str, text: str, count: int, whole_run: Path, market: str, tmp_path: Path
) -> None:
    command = ["train", market, "--out", str(tmp_path / "run"), *FOUR_EPOCHS]
    driver = [sys.executable, "-c", KILLED, module, function, text, str(count)]
    killed = subprocess.run([*driver, *command], capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert not (tmp_path / "run" / "model").exists()
    assert main([*command, "--resume"]) == 0
    for name in ("weights.safetensors", "run.json"):
        assert (tmp_path / "run" / "model" / name).read_bytes() == (whole_run / "model" / name).read_bytes()
    epochs, expected = (
        [(entry["epoch"], entry["loss"], entry["validation"], entry["best"]) for entry in map(json.loads, lines)]
        for lines in ((folder / "curve.jsonl").read_text().splitlines() for folder in (tmp_path / "run", whole_run))
    )
    assert epochs == expected


@pytest.fixture(scope="module")
def whole_run(market: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a training that nothing interrupted. Read-only."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert main(["train", market, "--out", str(folder), *FOUR_EPOCHS]) == 0
    return folder


def test_a_seed_from_a_config_is_used(market: str, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("seed = 7\n")
    for name, more, seed in (("a", ["--config", str(tmp_path / "c.toml")], 7), ("b", ["--set", "seed=5"], 5), ("c", [], 0)):
        assert main(["train", market, *QUICK, "--out", str(tmp_path / name), *more]) == 0
        assert json.loads((tmp_path / name / "model" / "run.json").read_text())["settings"]["seed"] == seed


def test_a_run_is_resumed_only_with_the_same_refit(market: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["train", market, "--out", str(tmp_path / "r"), *QUICK]
    assert main([*arguments, "--refit"]) == 0
    assert main([*arguments, "--refit", "all", "--resume"]) == 2
    assert "begun with other data or settings" in capsys.readouterr().err
