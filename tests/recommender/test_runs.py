"""From a folder of tables to a run folder and back: the commands, resuming, splits."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from gmlfm import Recommender, load_dataset, make_split
from gmlfm.cli import main
from gmlfm.data.sources.bazaar import Market, write_bazaar
from gmlfm.errors import OptionError

QUICK: dict[str, Any] = {"k": 8, "epochs": 3, "batch_size": 64, "lr": 0.02, "n_negatives": 2, "threads": 1}


@pytest.fixture(scope="module")
def market(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("market") / "m"
    write_bazaar(Market(n_users=400, n_purchases=4_000), folder)
    return folder


TRAIN = ["--set", "k=8", "--set", "epochs=4", "--set", "patience=9", "--threads", "1"]


def test_the_commands_from_training_to_recommendations(
    market: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(tmp_path / "run")
    assert main(["train", str(market), "--out", run, *TRAIN, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert 1 <= told["best_epoch"] <= 4
    lines = (tmp_path / "run" / "history.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == [1, 2, 3, 4]
    assert main(["evaluate", run, "--protocol", "sampled", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["protocol"], found["split_hash"]) == ("sampled", told["split_hash"])
    assert 0 < found["hr@10"] < 1
    assert main(["recommend", run, "--user", "b0000003", "-n", "3", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["rank"] for row in rows] == [1, 2, 3]
    assert {"user", "item", "score", "rank"} <= set(rows[0])
    assert main(["recommend", run, "--user", "nobody", "-n", "2"]) == 0
    assert "was not met in training" in capsys.readouterr().out
    assert main(["recommend", run, "--attributes", "age=20-29,region=Osaka", "-n", "2", "--filter", "genre = 'Concert'"]) == 0
    assert main(["recommend", run, "--all", "--out", str(tmp_path / "recs.parquet"), "-n", "5", "--json"]) == 0
    assert pl.read_parquet(tmp_path / "recs.parquet").height == 400 * 5
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    capsys.readouterr()
    assert main(["models", "--json"]) == 0
    assert {"name", "tasks", "uses_attributes"} <= set(json.loads(capsys.readouterr().out)[0])
    for arguments, message in (
        (["recommend", run], "say for whom"),
        (["recommend", run, "--all"], "needs --out FILE.parquet"),
        (["recommend", run, "--attributes", "age"], "takes K=V"),
        (["train", str(market), "--out", run, "--set", "k"], "--set takes KEY=VALUE"),
        (["train", str(market), "--out", run, "--resume", "--seed", "5"], "begun with other data or settings"),
        (["evaluate", run, "--protocol", "ful"], "did you mean 'full'"),
        (["evaluate", str(tmp_path)], "is no run"),
    ):
        assert main(arguments) == 2
        assert message in capsys.readouterr().err


def test_killed_at_random_moments_and_resumed_it_ends_with_the_same_weights(market: Path, tmp_path: Path) -> None:
    def command(out: str, *more: str) -> list[str]:
        return [sys.executable, "-m", "gmlfm", "train", str(market), "--out", str(tmp_path / out), *TRAIN, "--json", *more]

    started = time.perf_counter()
    subprocess.run(command("whole"), check=True, capture_output=True)
    seconds = time.perf_counter() - started
    expected = (tmp_path / "whole" / "model" / "weights.safetensors").read_bytes()
    moments = random.Random(0)
    for number in range(3):
        process = subprocess.Popen(command(f"killed{number}"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(seconds * (0.3 + 0.6 * moments.random()))
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        subprocess.run(command(f"killed{number}", "--resume"), check=True, capture_output=True)
        assert (tmp_path / f"killed{number}" / "model" / "weights.safetensors").read_bytes() == expected


def test_the_papers_preset_is_marked(market: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = {**QUICK, "epochs": 2}
    settings.pop("n_negatives")
    recommender = Recommender("gml-fm-dnn", preset="paper", **settings).fit(load_dataset(market), out=tmp_path / "r")
    assert recommender.settings.batches.fresh is False
    assert "chosen on the TEST part" in (tmp_path / "r" / "model" / "card.md").read_text()
    assert main(["evaluate", str(tmp_path / "r"), "--protocol", "paper"]) == 0
    assert "the epoch was chosen on the test part" in capsys.readouterr().out


def test_newcomers_are_told_apart(market: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recommender = Recommender(**QUICK).fit(load_dataset(market), split="newcomers", out=tmp_path / "run")
    found = recommender.evaluate(protocol="sampled")
    assert set(found.groups) <= {"warm-warm", "warm-new", "new-warm", "new-new"}
    assert len(found.groups) > 2
    sizes = np.array([one["rows"] for one in found.groups.values()])
    means = np.array([one["hr@10"] for one in found.groups.values()])
    assert sizes.sum() == len(found.rows)
    assert float((sizes * means).sum() / sizes.sum()) == pytest.approx(found.metrics["hr@10"])
    assert main(["evaluate", str(tmp_path / "run"), "--protocol", "sampled"]) == 0
    assert "new-new" in capsys.readouterr().out


def test_a_seed_from_a_config_is_used(market: Path, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("seed = 7\n")
    arguments = ["train", str(market), "--set", "k=2", "--set", "epochs=1", "--threads", "1"]
    for name, more, seed in (("a", ["--config", str(tmp_path / "c.toml")], 7), ("b", ["--set", "seed=5"], 5), ("c", [], 0)):
        assert main([*arguments, "--out", str(tmp_path / name), *more]) == 0
        assert json.loads((tmp_path / name / "model" / "run.json").read_text())["settings"]["seed"] == seed


def test_a_run_is_resumed_only_with_the_same_refit(market: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["train", str(market), "--out", str(tmp_path / "r"), "--set", "k=2", "--set", "epochs=1", "--threads", "1"]
    assert main([*arguments, "--refit"]) == 0
    assert main([*arguments, "--refit", "all", "--resume"]) == 2
    assert "begun with other data or settings" in capsys.readouterr().err


def test_a_published_run_stays_marked_when_saved_again(tmp_path: Path, market: Path) -> None:
    settings = {"k": 4, "epochs": 1, "threads": 1}
    Recommender("gml-fm-dnn", preset="paper", **settings).fit(load_dataset(market), out=tmp_path / "r")
    Recommender.load(tmp_path / "r").save(tmp_path / "again")
    assert "chosen on the TEST part" in (tmp_path / "again" / "model" / "card.md").read_text()


def test_wrong_use_of_recommend_options(market: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(tmp_path / "run")
    assert main(["train", str(market), "--model", "popularity", "--out", run]) == 0
    capsys.readouterr()
    for arguments, message in (
        (["--user", "a", "--out", "x.parquet"], "--out goes with --all"),
        (["--user", "a", "--history", "i"], "--history goes with --attributes"),
        (["--attributes", "age=20-29", "--seen"], "--seen goes with"),
    ):
        assert main(["recommend", run, *arguments]) == 2
        assert message in capsys.readouterr().err
    assert main(["recommend", run, "--attributes", "age=20-29", "--history", "zz", "-n", "2", "--json"]) == 0
    told = capsys.readouterr()
    assert len(json.loads(told.out)) == 2
    assert "the item 'zz' of the history is unknown" in told.err
    (tmp_path / "run" / "model" / "run.json").write_text("[]")
    assert main(["evaluate", run]) == 2
    (tmp_path / "run" / "model" / "run.json").write_text('{"format": 2}')
    assert main(["evaluate", run]) == 2
    assert "is damaged" in capsys.readouterr().err


def test_items_never_met_are_ranked_among_such_items(market: Path) -> None:
    """A scorer that only tells met from unmet items must gain nothing by it."""
    from gmlfm.evaluation.protocols import evaluate_held_out

    data = load_dataset(market)
    split = make_split(data, "newcomers", seed=0)
    met = np.bincount(data.item_numbers[split.train], minlength=len(data.items)) > 0

    class Unmet:
        def score_pairs(self, users: Any, items: Any, rows: Any = None) -> Any:
            return (~met[items]).astype(np.float32)

        def score_all(self, users: Any, items: Any, rows: Any = None) -> Any:
            return np.tile((~met[items]).astype(np.float32), (len(users), 1))

    found = evaluate_held_out(Unmet(), data, split, "test", "sampled")
    for group in ("warm-new", "new-new"):
        if group in found.groups:
            assert found.groups[group]["hr@10"] == pytest.approx(0.10)
    assert len(found.queries["hr@10"]) == len(split.test)


def test_a_full_gpu_says_what_to_lower(market: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    monkeypatch.setattr("gmlfm.training.loop.Trainer.fit", full)
    with pytest.raises(OptionError, match=r"the GPU's memory is full .*; lower k or batch_size, or use the device cpu"):
        Recommender("gml-fm", k=4).fit(load_dataset(market))
