"""Ctrl-C, SIGTERM and SIGHUP at chosen moments: a sentence, the exit code of the signal, and the same result when gone on with."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from gmlfm import Recommender
from gmlfm.cli import main
from gmlfm.data.sources.bazaar import Market, write_bazaar
from gmlfm.runs import model_folder
from tests.fuzz.processes import signalled

TRAIN = ["train", "{market}", "--out", "{out}", "--model", "fm", "--set", "k=4", "--set", "epochs=3", "--set", "patience=9"]
TRAIN += ["--set", "history=none", "--threads", "1", "--refit"]  # an epoch is one call of on_step
PREPARE = ["data", "prepare", "{market}", "--out", "{out}", "--rows-in-memory", "400"]
ALL = ["recommend", "{run}", "--all", "--out", "{out}.parquet", "-n", "3"]
STEP = ("gmlfm.cli.train:EpochLines", "on_step", "")
INT, TERM, HUP = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
# (signal, moment, command): is there a run afterwards?
CASES: dict[str, tuple[int, tuple[str, str, str, int], list[str], bool]] = {
    "INT in the first epoch": (INT, (*STEP, 1), TRAIN, False),
    "TERM in the second epoch": (TERM, (*STEP, 2), TRAIN, True),
    "INT after a checkpoint": (INT, ("gmlfm.training.checkpoint", "remove_checkpoints", "", 99), TRAIN, True),
    "TERM while the run is saved": (TERM, ("gmlfm.runs.generation", "save_dataset", "", 1), TRAIN, False),
    "INT while a table is prepared": (INT, ("gmlfm.data.sources.preparing.run", "write_text", "", 1), PREPARE, False),
    "TERM while everybody is recommended to": (TERM, ("gmlfm.cli.recommend", "new_file", "", 1), ALL, False),
    "TERM in the first epoch": (TERM, (*STEP, 1), TRAIN, False),
    "HUP in the second epoch": (HUP, (*STEP, 2), TRAIN, True),
    "INT in the third epoch": (INT, (*STEP, 3), TRAIN, True),
    "TERM in the refit": (TERM, (*STEP, 4), TRAIN, True),
    "INT before the refit": (INT, ("gmlfm.fitting.memory:MemoryPlan", "refit_inputs", "", 1), TRAIN, True),
    "INT at the end of an epoch": (INT, ("gmlfm.cli.train:EpochLines", "on_epoch", "", 2), TRAIN, True),
    "TERM at a checkpoint": (TERM, ("gmlfm.fitting.plan", "save_checkpoint", "", 2), TRAIN, True),
    "INT at the end of a checkpoint": (INT, ("os", "replace", "epoch-00002.json", 1), TRAIN, True),
    "INT while the run is saved": (INT, ("gmlfm.runs.generation", "checksums", "", 1), TRAIN, False),
    "HUP while the run is saved": (HUP, ("gmlfm.runs.generation", "save_split", "", 1), TRAIN, False),
    "TERM while data are read": (TERM, ("gmlfm.cli.train", "load_dataset", "", 1), TRAIN, False),
    "TERM while a table is prepared": (TERM, ("gmlfm.data.sources.preparing.run", "write_text", "", 1), PREPARE, False),
    "HUP while a table is prepared": (HUP, ("os", "replace", "", 5), PREPARE, False),
    "INT while everybody is recommended to": (INT, ("gmlfm.cli.recommend", "new_file", "", 2), ALL, False),
    "HUP while everybody is recommended to": (HUP, ("gmlfm.cli.recommend", "new_file", "", 1), ALL, False),
    "INT while users are ranked": (INT, ("gmlfm.recommender.core", "rank_for_users", "", 1), ALL, False),
}
# The machine decides how many are tried each time; all of them on request.
CHOSEN = list(CASES) if float(os.environ.get("GMLFM_FUZZ", "1")) >= 4 else list(CASES)[:6]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A market, and what each command makes of it when nobody stops it. Read-only."""
    folder = tmp_path_factory.mktemp("signals")
    write_bazaar(Market(n_users=150, n_purchases=1_800), folder / "market")
    for name, words in (("train", TRAIN), ("prepare", PREPARE), ("all", ALL)):
        assert main(_words(words, folder, folder / "train", folder / name)) == 0
    return folder


def _words(words: list[str], home: Path, run: Path, out: Path) -> list[str]:
    return [word.format(market=home / "market", run=run, out=out) for word in words]


@pytest.mark.parametrize("name", CHOSEN)
def test_signals(name: str, home: Path, tmp_path: Path) -> None:
    number, moment, words, has_run = CASES[name]
    command = _words(words, home, home / "train", tmp_path / "out")
    if moment[3] == 99:  # never comes: an ordinary training, resumed after its end
        assert main(command) == 0
    else:
        done = signalled(number, moment, command)
        assert done.returncode == 128 + number, done.stderr
        assert "Traceback" not in done.stderr
        sentences = [text for text in done.stderr.splitlines() if text.startswith("gmlfm: ")]
        assert len(sentences) == 1, done.stderr
        assert ("is saved in" in sentences[0]) == has_run, sentences
        assert (tmp_path / "out" / "run.json").exists() == has_run
        if has_run:
            assert Recommender.load(tmp_path / "out").fitted.report.interrupted
            assert sentences[0].endswith("--resume")
    assert main([*command, *(["--resume"] if words is TRAIN else [])]) == 0
    _check_same(words, home, tmp_path)


def _check_same(words: list[str], home: Path, folder: Path) -> None:
    """What came of it is what comes of it without a signal."""
    if words is ALL:
        assert pl.read_parquet(folder / "out.parquet").equals(pl.read_parquet(home / "all.parquet"))
        assert [path.name for path in folder.iterdir()] == ["out.parquet"]
    elif words is PREPARE:
        files = sorted(path.relative_to(home / "prepare") for path in (home / "prepare").rglob("*.parquet"))
        assert sorted(path.relative_to(folder / "out") for path in (folder / "out").rglob("*.parquet")) == files
        assert all((folder / "out" / name).read_bytes() == (home / "prepare" / name).read_bytes() for name in files)
    else:
        weights, expected = (model_folder(run) / "weights.safetensors" for run in (folder / "out", home / "train"))
        assert weights.read_bytes() == expected.read_bytes()
        assert not json.loads((folder / "out" / "run.json").read_text())["interrupted"]


def test_what_is_ignored_stays_ignored(home: Path, tmp_path: Path) -> None:
    """nohup: a terminal that is closed ends nothing."""
    code = "import signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN); sys.argv[0:1] = []; exec(sys.argv.pop(0))"
    from tests.fuzz.processes import SIGNALLED

    command = [sys.executable, "-c", code, SIGNALLED, "-c", str(int(HUP)), *STEP[:2], "", "1"]
    done = subprocess.run([*command, *_words(TRAIN, home, home, tmp_path / "out")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_there_are_as_many_as_were_tried_by_hand() -> None:
    assert len(CASES) >= 22
