from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from gmlfm import Recommender
from gmlfm.cli import main
from gmlfm.cli.progress import EpochLines
from gmlfm.progress import Activity
from gmlfm.progress.displays import PlainDisplay


def test_training_prints_a_row_for_each_epoch() -> None:
    console = Console(file=io.StringIO(), width=200)
    reports: list[Any] = [
        SimpleNamespace(epoch=1, loss=0.5, validation={"hr@10": 0.25}, best=True, instances_per_second=2_000.0),
        SimpleNamespace(epoch=2, loss=0.4, validation={}, best=True, instances_per_second=3_000.0),
    ]
    trainer: Any = None
    observer = EpochLines(console)
    for report in reports:
        observer.on_step(1, 2, report.loss)
        observer.on_epoch(report, trainer)
    row_1, row_2 = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert row_1 == "epoch   1  loss 0.5000  hr@10 0.2500  2 k instances/s  best"
    assert row_2 == "epoch   2  loss 0.4000    3 k instances/s"


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a command tells its display, in the words that each activity begins and ends with."""
    words: list[str] = []

    class Recording(PlainDisplay):
        def begin(self, text: str | Callable[[float], str], unit: str = "") -> Activity:
            words.append(text if isinstance(text, str) else text(self.clock()))
            return super().begin(text, unit)

        def end(self, activity: Activity) -> None:
            if isinstance(activity.words, str):
                words.append(activity.words)
            super().end(activity)

    monkeypatch.setattr(sys.modules["gmlfm.cli.main"], "display", lambda background: Recording(io.StringIO()))
    return words


def _contains_in_order(words: list[str], expected: list[str]) -> bool:
    rest = iter(words)
    return all(any(text in word for word in rest) for text in expected)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (
            "train MARKET --model fm --set k=2 --set epochs=1 --threads 1 --refit --out OUT/run",
            [
                *("reading purchases", "reading buyers", "reading items", "checking the tables", "splitting", "encoding"),
                *("fitting fm", "epoch 1 of at most 1, 0 without gain", "encoding for the refit", "epoch 1 of 1", "writing"),
                "drawing the report",
            ],
        ),
        ("evaluate RUN", ["reading", "evaluating gml-fm", "evaluating popularity"]),
        ("recommend RUN --user b0000003", ["reading", "recommending"]),
        ("recommend RUN --all --out OUT/all.parquet", ["reading", "recommending", "writing"]),
        ("explain RUN --user b0000003 --item ITEM --against mean", ["reading", "explaining"]),
        ("similar RUN --user b0000003", ["reading", "measuring distances"]),
        ("predict RUN --user b0000003 --item ITEM", ["reading", "scoring"]),
        ("attributes RUN", ["reading", "measuring", "adding up pairs of fields"]),
        ("data describe MARKET", ["reading purchases", "counting"]),
        ("data get bazaar --users 60 --out OUT/bazaar", ["getting bazaar"]),
        ("data prepare MARKET --out OUT/prepared", ["counting rows", "encoding interactions"]),
        ("init MARKET/purchases/000000.parquet --out OUT/dataset.toml", ["looking at 1 file", "reading them as described"]),
        ("bench topn MARKET --rounds 2 --threads 1", ["precomputing", "round 1 of 2", "round 2 of 2", "pair after pair"]),
        (
            "tune MARKET --model item-knn --trials 2 --threads 1 --out OUT/study",
            ["tuning item-knn: trial 1 of 2", "fitting item-knn"],
        ),
        (
            "compare MARKET --models popularity,item-knn --trials 1 --seeds 2 --threads 1 --out OUT/comparison",
            ["comparing", "tuning popularity", "fitting popularity", "testing", "tuning item-knn", "testing", "drawing"],
        ),
        ("demo --users 60 --epochs 1 --out OUT/demo", ["making the market", "epoch 1", "testing gml-fm", "drawing the report"]),
    ],
    ids=lambda value: " ".join(value.split()[:2]) if isinstance(value, str) else "",
)
def test_whatever_takes_time_is_told(
    command: str, expected: list[str], market: str, run: str, tmp_path: Path, told: list[str]
) -> None:
    item = Recommender.load(run).fitted.data.items.ids[0]
    names = {"MARKET": market, "RUN": run, "OUT": str(tmp_path), "ITEM": item}
    words = [names.get(word.split("/")[0], word.split("/")[0]) + word[len(word.split("/")[0]) :] for word in command.split()]
    told.clear()
    assert main(words) == 0
    assert _contains_in_order(told, expected), told


def test_a_pipe_stays_silent_for_short_work(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["recommend", run, "--user", "b0000003"]) == 0
    assert capsys.readouterr().err == ""
