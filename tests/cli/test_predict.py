from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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


def test_context_is_handed_on(run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    keywords: list[dict[str, Any]] = []
    frame = pl.DataFrame({"user": ["a"], "item": ["b"], "score": [1.0]})

    def recorded(self: Recommender, pairs: Any, **more: Any) -> pl.DataFrame:
        keywords.append(more)
        return frame

    monkeypatch.setattr(Recommender, "predict", recorded)
    assert main(["predict", run, "--user", "a", "--item", "b", "--context", "hour=9,day=mon"]) == 0
    assert main(["predict", run, "--user", "a", "--item", "b"]) == 0
    assert keywords == [{"context": {"hour": "9", "day": "mon"}}, {}]


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
