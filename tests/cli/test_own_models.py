"""Models of a user's own, in a file outside the package, through every command that takes one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gmlfm import Recommender
from gmlfm.cli import main
from tests.cli.conftest import QUICK

CODE = '''
from typing import Annotated

import torch

import gmlfm


class Dot(gmlfm.PairwiseModel):
    """Inner products, and a bias for each attribute."""

    def __init__(self, k: Annotated[int, gmlfm.Setting("factors of each attribute", least=1, most=64)] = 4):
        super().__init__()
        self.k = k

    @property
    def row_width(self):
        return self.k + 1

    def linear(self, rows):
        return rows[..., 0]

    def pair_parts(self, left, right):
        return left[:, 1:] @ right[:, 1:].T, None


class Blind(gmlfm.ClosedFormModel):
    """The same score for everything."""

    def fit(self, inputs, plan):
        return gmlfm.FitReport()

    def score_all(self, users, items):
        import numpy as np

        return np.zeros((len(users), len(items)), np.float32)

    def state_dict(self):
        return {"nothing": torch.zeros(1)}

    def load_state_dict(self, state):
        pass


class NoModel:
    """Something else."""


class NoScores(gmlfm.GradientModel):
    row_width = 2
'''
DOT = ["--model", "my_models:Dot"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the models' file, which is no part of any package."""
    folder = tmp_path_factory.mktemp("elsewhere")
    (folder / "my_models.py").write_text(CODE)
    (folder / "broken.py").write_text("import nothing_of_that_name\n")
    yield folder
    for name in ("my_models", "broken"):
        sys.modules.pop(name, None)


@pytest.fixture(autouse=True)
def _inside(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands are called from that folder, which is not on the path yet."""
    monkeypatch.chdir(place)
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder])


@pytest.fixture(scope="module")
def run_folder(place: Path, market: str) -> str:
    """A run of Dot, trained by the command in a process of its own. Read-only."""
    command = [sys.executable, "-m", "gmlfm", "train", market, *DOT, "--out", "runs/dot", *QUICK, "--json"]
    finished = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    assert json.loads(finished.stdout)["run"] == "runs/dot"
    return "runs/dot"


def _json(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> Any:
    capsys.readouterr()
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_run_is_evaluated_and_recommends(run_folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    metrics = _json(["evaluate", run_folder, *DOT], capsys)
    assert metrics["model"] == "my_models:Dot"
    assert 0 < metrics["hr@10"] <= 1
    rows = _json(["recommend", run_folder, *DOT, "--user", "b0000003", "-n", "3"], capsys)
    assert [row["rank"] for row in rows] == [1, 2, 3]
    newcomer = _json(
        ["recommend", run_folder, *DOT, "--attributes", "age=20-29", "--history", rows[0]["item"], "-n", "2"], capsys
    )
    assert rows[0]["item"] not in [row["item"] for row in newcomer]
    pair = ["--user", "b0000003", "--item", rows[0]["item"]]
    assert _json(["predict", run_folder, *DOT, *pair], capsys)[0]["score"] == pytest.approx(rows[0]["score"], rel=1e-5)
    explanation = _json(["explain", run_folder, *DOT, *pair], capsys)
    assert sum(term["value"] for term in explanation["terms"]) == pytest.approx(rows[0]["score"], rel=1e-4)
    near = _json(["similar", run_folder, *DOT, "--item", rows[0]["item"], "-n", "2"], capsys)
    assert len(near) == 2


def test_a_run_changes_and_stays_of_that_model(run_folder: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    item = _json(["recommend", run_folder, *DOT, "--user", "b0000003", "-n", "1"], capsys)[0]["item"]
    Recommender.load(run_folder, "my_models:Dot").save(place / "copy")
    assert main(["sold", "copy", *DOT, item]) == 0
    assert main(["forget", "copy", *DOT, "--user", "b0000003"]) == 0
    rows = _json(["recommend", "copy", *DOT, "--user", "b0000003", "-n", "5"], capsys)
    assert not rows[0]["known"]
    assert item not in [row["item"] for row in rows]


def test_what_comes_next_names_the_class(market: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", market, "--model", "my_models:Blind", "--out", "runs/blind"]) == 0
    hint = capsys.readouterr().out.split("Next: gmlfm ")[1].split()
    assert hint[:4] == ["evaluate", "runs/blind", "--model", "my_models:Blind"]
    metrics = _json(["evaluate", "runs/blind", "--model", "my_models:Blind"], capsys)
    assert 0 < metrics["hr@10"] < 0.5  # ties are averaged over
    assert main(["explain", "runs/blind", "--model", "my_models:Blind", "--user", "b0000003", "--item", "t000000001"]) == 2
    assert "an explanation is not available for 'my_models:Blind'" in capsys.readouterr().err


def test_settings_and_description(capsys: pytest.CaptureFixture[str]) -> None:
    rows = {row["name"]: row for row in _json(["settings", "my_models:Dot"], capsys)}
    assert (rows["k"]["kind"], rows["k"]["default"], rows["k"]["range"], rows["k"]["of"]) == ("int", 4, "1 to 64", "model")
    assert "lr" in rows
    described = _json(["models", "my_models:Dot"], capsys)
    assert described["name"] == "my_models:Dot"
    assert described["about"] == "Inner products, and a bias for each attribute"
    assert main(["models", "my_models:Dot"]) == 0
    assert "Its equation is in the docstring of my_models." in capsys.readouterr().out


def test_tuning(market: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tuned = _json(["tune", market, *DOT, "--trials", "1", "--threads", "1", "--out", "study"], capsys)
    assert (tuned["model"], tuned["trials"]) == ("my_models:Dot", 1)
    assert "lr = " in (place / "study" / "best.toml").read_text()


def test_comparing_beside_one_of_ours(shop: Path, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", str(shop / "orders.csv"), str(shop / "products.csv")]) == 0
    command = ["compare", str(shop), "--models", "fm,my_models:Dot", "--trials", "1", "--seeds", "1", "--threads", "1"]
    comparison = _json([*command, "--out", "both"], capsys)
    assert {row["model"] for row in comparison["rows"]} == {"fm", "my_models:Dot"}
    assert comparison["failures"] == {}
    assert "my_models:Dot" in (place / "both" / "table.md").read_text()
    names = {path.name for path in (place / "both").rglob("*")}
    assert {"my_models.Dot-0.parquet", "my_models.Dot.json", "my_models.Dot", "fm-0.parquet"} <= names
    assert not [name for name in names if ":" in name]  # some file systems allow none
    assert _json([*command, "--out", "both"], capsys) == comparison  # what is there is read


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("gone:Dot", "the module 'gone' of 'gone:Dot' cannot be imported (ModuleNotFoundError"),
        ("broken:Dot", "the module 'broken' of 'broken:Dot' cannot be imported (ModuleNotFoundError: No module named 'nothing"),
        ("my_models:Dott", "the module 'my_models' has no class 'Dott'; did you mean 'Dot'?"),
        ("my_models:", "the module 'my_models' has no class ''"),
        ("my_models:NoModel", "'my_models:NoModel' is no gmlfm.Model class; derive it from gmlfm.GradientModel"),
        ("my_models:torch", "'my_models:torch' is no gmlfm.Model class"),
        (":Dot", "cannot be imported"),
    ],
)
@pytest.mark.parametrize("command", ["train", "evaluate", "compare", "settings"])
def test_a_model_that_is_not_there_is_one_sentence(
    command: str, model: str, message: str, run_folder: str, market: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = {
        "train": [market, "--model", model, "--out", "runs/none"],
        "evaluate": [run_folder, "--model", model],
        "compare": [market, "--models", f"fm,{model}", "--trials", "1", "--out", "none"],
        "settings": [model],
    }[command]
    capsys.readouterr()
    assert main([command, *arguments]) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.err.count("\n") == 1
    assert printed.out == ""


def test_a_class_without_scores_is_one_sentence(market: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", market, "--model", "my_models:NoScores", "--out", "runs/none"]) == 2
    printed = capsys.readouterr().err
    assert "NoScores has no scores(self, rows, user_side, item_side), which returns (B, G) scores" in printed
    assert printed.count("\n") == 1


@pytest.mark.parametrize("command", ["evaluate", "recommend", "explain", "similar", "forget", "sold"])
def test_a_run_without_its_class_shows_the_right_call(
    command: str, run_folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    more = {
        "recommend": ["--user", "b0000003"],
        "explain": ["--user", "b0000003", "--item", "t000000001"],
        "similar": ["--item", "t000000001"],
        "forget": ["--user", "b0000003"],
        "sold": ["t000000001"],
    }
    capsys.readouterr()
    assert main([command, run_folder, *more.get(command, [])]) == 2
    printed = capsys.readouterr().err
    assert "holds a run of 'my_models:Dot', which is no model of gmlfm's own; give its class: " in printed
    assert "--model my_models:Dot." in printed
    assert printed.count("\n") == 1
    assert main([command, run_folder, "--model", "fm", *more.get(command, [])]) == 2
    assert "holds a run of 'my_models:Dot', not of 'fm'" in capsys.readouterr().err
