from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from gmlfm import Recommender
from gmlfm.cli import main


def test_scores_of_pairs(run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recommender = Recommender.load(run)
    items = recommender.fitted.data.items.ids[:3].to_list()
    capsys.readouterr()
    assert main(["predict", run, "--user", "b0000003", "--item", *items[:2], "--item", items[2], "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    expected = recommender.predict([("b0000003", item) for item in items])["score"].to_list()
    assert [row["item"] for row in rows] == items
    assert [row["score"] for row in rows] == expected
    pl.DataFrame({"user": ["b0000003"] * 3, "item": items}).write_csv(tmp_path / "pairs.csv")
    assert main(["predict", run, "--pairs", str(tmp_path / "pairs.csv"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == rows
    assert main(["predict", run, "--user", "b0000003", "--item", items[0]]) == 0
    shown = capsys.readouterr().out
    assert f"{expected[0]:.4f}" in shown
    assert "note" not in shown
    assert main(["predict", run, "--user", "nobody", "--item", items[0]]) == 0
    assert "nothing is known of user 'nobody': the score is the model's for a stranger" in capsys.readouterr().out


def test_context_changes_the_scores(context_run: str, run: str, capsys: pytest.CaptureFixture[str]) -> None:
    scores = []
    for context in ([], ["--context", "daytime=morning"], ["--context", "daytime=evening"]):
        capsys.readouterr()
        assert main(["predict", context_run, "--user", "1", "--item", "p3", *context, "--json"]) == 0
        scores.append(json.loads(capsys.readouterr().out)[0]["score"])
    assert len(set(scores)) == 3
    item = Recommender.load(run).fitted.data.items.ids[0]
    assert main(["predict", run, "--user", "b0000003", "--item", item, "--context", "hour=9,day=mon"]) == 2
    assert "the data have no context, but hour, day was given" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "say which pairs: --user ID --item ID..., or --pairs FILE"),
        (["--user", "a"], "say which pairs"),
        (["--item", "a"], "say which pairs"),
        (["--user", "a", "--item", "b", "--pairs", "p.csv"], "say which pairs"),
        (["--user", "a", "--pairs", "p.csv"], "say which pairs"),
        (["--pairs", "gone.csv"], "gone.csv does not exist"),
        (["--user", "b0000003", "--item", "nothing"], "the item 'nothing' is not in the catalogue"),
    ],
)
def test_wrong_use_is_one_sentence(run: str, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["predict", run, *arguments]) == 2
    printed = capsys.readouterr().err
    assert message in printed
    assert printed.count("\n") == 1
