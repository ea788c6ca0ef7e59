from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from gmlfm import Recommender
from gmlfm.cli import main
from gmlfm.runs import model_folder
from gmlfm.training.row_trainer import RowTrainer
from tests.cli.conftest import QUICK

FOUR_EPOCHS = ["--set", "k=8", "--set", "epochs=4", "--set", "patience=9", "--threads", "1", "--json"]
# The n-th call of a function, among those whose arguments hold a text, kills the process, as a power cut would.
KILLED = """
import os, signal, sys
from importlib import import_module
from gmlfm.cli import main
from gmlfm.runs import model_folder
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
    assert main(["train", market, "--out", out, *QUICK, "--seed", "1"]) == 2
    assert f"{out} holds a finished run; choose a new folder, or replace it with --force." in capsys.readouterr().err
    assert main(["train", market, "--out", out, *QUICK, "--seed", "1", "--force"]) == 0
    shown = capsys.readouterr().out
    assert "Best epoch 1: validation (sampled) hr@10" in shown
    assert "(no refit)" in shown
    assert f"Saved in {out}, with curves and settings in report.html. Next: gmlfm evaluate {out}" in shown


@pytest.mark.parametrize(
    ("more", "shown"), [([], "Validation (sampled) hr@10 0."), (["--preset", "paper"], "TEST, as published, hr@10 0.")]
)
def test_a_model_fitted_at_once_shows_its_validation_too(
    more: list[str], shown: str, market: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", market, "--model", "popularity", "--out", str(tmp_path / "run"), *more]) == 0
    assert shown in capsys.readouterr().out


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
    assert "was begun otherwise and cannot be resumed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("module", "function", "text", "count"),
    [
        ("gmlfm.cli.train:EpochLines", "on_step", "", 1),  # before the first checkpoint
        ("gmlfm.cli.train:EpochLines", "on_step", "", 3),  # in the middle of an epoch
        ("gmlfm.fitting.plan", "save_checkpoint", "", 3),  # the curve has an epoch more than the checkpoints
        ("os", "replace", "epoch-00002.json", 1),  # weights without their checksum
        ("gmlfm.runs.run_folder", "save_run", "", 1),  # after the last epoch
    ],
)
def test_killed_and_resumed_it_ends_with_the_same_weights(
    module: str, function: str, text: str, count: int, whole_run: Path, market: str, tmp_path: Path
) -> None:
    command = ["train", market, "--out", str(tmp_path / "run"), *FOUR_EPOCHS]
    driver = [sys.executable, "-c", KILLED, module, function, text, str(count)]
    killed = subprocess.run([*driver, *command], capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert not (tmp_path / "run" / "run.json").exists()
    assert main([*command, "--resume"]) == 0
    weights = [model_folder(folder) / "weights.safetensors" for folder in (tmp_path / "run", whole_run)]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    abouts = [json.loads((folder / "run.json").read_text()) for folder in (tmp_path / "run", whole_run)]
    for about in abouts:  # the curve has times in it
        del about["files"]["curve.jsonl"], about["check"], about["version"]
    assert abouts[0] == abouts[1]
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
        assert json.loads((tmp_path / name / "run.json").read_text())["settings"]["seed"] == seed


def test_a_run_is_resumed_only_with_the_same_refit(market: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["train", market, "--out", str(tmp_path / "r"), *QUICK]
    assert main([*arguments, "--refit"]) == 0
    assert main([*arguments, "--refit", "all", "--resume"]) == 2
    assert "was begun otherwise and cannot be resumed" in capsys.readouterr().err


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """A shop without times, and a split of it as public repositories publish theirs."""
    rows = [(f"c{n % 6}", f"p{(n // 6 + n) % 9}", 1 + n % 5) for n in range(36)]
    assert len({row[:2] for row in rows}) == 36
    (tmp_path / "orders.csv").write_text("customer,product,stars\n" + "".join(f"{u},{i},{s}\n" for u, i, s in rows))
    (tmp_path / "dataset.toml").write_text(
        '[interactions]\npath = "orders.csv"\nuser = "customer"\nitem = "product"\nlabel = "stars"\n'
    )
    parts = {"train": rows[:24], "validation": rows[24:30], "test": rows[30:]}
    for name, part in parts.items():
        (tmp_path / f"{name}.rating").write_text("".join(f"{u}\t{i}\t{s}\n" for u, i, s in part))
    free = {u: [f"p{n}" for n in range(9) if (u, f"p{n}") not in {row[:2] for row in rows}] for u, *_ in rows}
    (tmp_path / "test.negative").write_text("".join(f"({u},{i})\t" + "\t".join(free[u]) + "\n" for u, i, _ in rows[30:]))
    return tmp_path


def _files(folder: Path, *names: str) -> list[str]:
    files = {"test-candidates": "test.negative"}
    return ["--split", "files", *(f"--split-file={name}={folder / files.get(name, f'{name}.rating')}" for name in names)]


def test_a_published_split_is_trained_on_recorded_and_resumed(published: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = published / "run"
    split = _files(published, "train", "validation", "test", "test-candidates")
    command = ["train", str(published), "--out", str(run), "--model", "fm", *QUICK]
    assert main([*command, *split]) == 0
    assert "note test rows are ranked among the lists that were brought, of 3 candidates each." in capsys.readouterr().out
    stored = [path for path in model_folder(run).rglob("*") if path.suffix in (".json", ".md", ".parquet")]
    assert not [path.name for path in stored if str(published).encode() in path.read_bytes()]
    about = json.loads((run / "run.json").read_text())["split"]
    assert set(about["options"]) == {"seed", "task", "train", "validation", "test", "test_candidates"}
    fitted = Recommender.load(run).fitted
    assert (len(fitted.split.train), len(fitted.split.validation), fitted.split.test.tolist()) == (24, 6, list(range(30, 36)))
    assert fitted.split.hash == about["hash"]
    lists = fitted.split.test_candidates
    assert lists is not None
    assert lists.shape == (6, 3)
    assert main([*command, *split, "--resume"]) == 0
    text = (published / "test.negative").read_text().splitlines()
    (published / "test.negative").write_text("\n".join([text[0].rpartition("\t")[0], *text[1:]]))
    assert main([*command, *split, "--resume"]) == 2
    assert "was begun otherwise and cannot be resumed" in capsys.readouterr().err


def test_without_times_the_rows_are_split_at_random_and_that_is_said(
    published: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["train", str(published), "--out", str(published / "run"), "--model", "fm", *QUICK]
    assert main(command) == 0
    note = "note no time is declared, so the rows are split at random; set [interactions] time for the order of time."
    assert note in capsys.readouterr().out
    assert main([*command, "--split", "leave-one-out", "--force"]) == 0
    assert "note no time is declared: the order of the file decides which row is the latest." in capsys.readouterr().out


def test_where_a_published_split_cannot_be_used_it_is_said(published: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["train", str(published), "--out", str(published / "run"), *QUICK]
    split = _files(published, "train", "validation", "test")
    assert main([*command, *split, "--task", "rating", "--model", "fm"]) == 0
    command.append("--force")
    assert main([*command, *split, "--task", "implicit", "--model", "fm"]) == 2
    assert "the task 'implicit' splits its drawn instances at random" in capsys.readouterr().err
    assert main(["data", "prepare", str(published), "--out", str(published / "prepared")]) == 0
    assert main(["train", str(published / "prepared"), "--out", str(published / "other"), *QUICK, *split]) == 2
    assert not (published / "other").exists()
    assert "is split already" in capsys.readouterr().err
    (published / "test.rating").write_text("c0\tp1\t5\nc0\tp99\t5\n")
    assert main([*command, *split]) == 2
    assert "test.rating line 2: the item 'p99' is not in the data (1 such rows)" in capsys.readouterr().err


def test_where_nothing_was_learned_it_fails_and_leaves_no_model(
    market: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["train", market, "--out", str(tmp_path / "r"), "--model", "fm", *QUICK, "--set", "lr=1000"]
    arguments += ["--set", "history=none"]  # with one the first step overflows
    assert main(arguments) == 1
    shown = capsys.readouterr()
    assert shown.err.startswith("gmlfm: nothing was learned: the loss after epoch 1 is above the ")
    assert shown.err.endswith("that it started from; lower lr (now 1000).\n")
    assert "Best epoch" not in shown.out
    assert not (tmp_path / "r").exists()
    assert main([*arguments, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["error"].startswith("nothing was learned")
    assert main(["evaluate", str(tmp_path / "r")]) == 2


def test_a_good_epoch_before_an_overflow_is_saved_and_the_overflow_told(
    market: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The losses were numbers to the last step, which left weights that are not."""
    run_epoch = RowTrainer.run_epoch

    def overflows(self: RowTrainer, observer: Any) -> float:
        loss = run_epoch(self, observer)
        if self.epoch == 1:
            self.table[5:] = float("inf")
        return loss

    monkeypatch.setattr(RowTrainer, "run_epoch", overflows)
    out = str(tmp_path / "r")
    arguments = ["train", market, "--out", out, *QUICK, "--set", "epochs=3"]
    assert main(arguments) == 0
    shown = " ".join(capsys.readouterr().out.split())
    sentence = "the weights of epoch 1 are kept: weights are not finite after epoch 2; lower lr (now 0.005)."
    assert f"note {sentence}" in shown
    assert "Best epoch 1: validation" in shown
    assert main(["evaluate", out]) == 0
    capsys.readouterr()
    assert main([*arguments, "--force", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["diverged"] == sentence


@pytest.mark.parametrize(
    ("more", "timed", "line"),
    [
        ([], True, "history is auto: on (last,recent,past), as for top-n where times differ; none trains without."),
        (
            ["--model", "gml-fm"],
            True,
            "history is auto: on (last,recent,past), as for top-n where times differ; none trains without.",
        ),
        ([], False, "history is auto: none, as the data do not say what came before what."),
        (["--task", "implicit"], True, "history is auto: none, as the task is implicit."),
        (["--preset", "paper"], True, "history is auto: none, as the preset 'paper' has none."),
        (["--set", "history=none"], True, None),
        (["--set", "history=last"], True, None),
        (["--model", "nfm"], True, None),
    ],
)
def test_what_auto_came_to_is_said_in_one_line(
    more: list[str], timed: bool, line: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [(f"u{user}", f"i{(4 * user + step) % 120}", step) for user in range(30) for step in range(5)]
    table = pl.DataFrame(rows, schema=["user", "item", "time"], orient="row")
    table.write_csv(tmp_path / "rows.csv")
    text = '[interactions]\npath = "rows.csv"\nuser = "user"\nitem = "item"\n' + ('time = "time"\n' if timed else "")
    (tmp_path / "dataset.toml").write_text(text)
    model = [] if "--model" in more else ["--model", "fm"]
    options = ["--out", str(tmp_path / "run"), *model, "--set", "k=2", "--set", "epochs=1", "--threads", "1"]
    assert main(["train", str(tmp_path), *options, *more]) == 0
    shown = capsys.readouterr().out
    assert shown.count("history is auto") == (line is not None)
    assert line is None or line in shown
