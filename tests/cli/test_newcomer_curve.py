from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from gmlfm import Dataset, Recommender
from gmlfm.cli import main


@pytest.fixture(scope="module")
def newcomers_run(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A run of item-knn on 40 users with 12 rows each, a quarter of them new. Read-only."""
    rng = np.random.default_rng(0)
    rows = [(f"u{user}", f"i{item}", time) for user in range(40) for time, item in enumerate(rng.permutation(30)[:12])]
    schema = {"interactions": {"user": "u", "item": "i", "time": "t"}}
    data = Dataset.from_tables(pl.DataFrame(rows, schema=["u", "i", "t"], orient="row"), schema=schema)
    out = str(tmp_path_factory.mktemp("curve") / "run")
    Recommender("item-knn", threads=1).fit(data, split="newcomers", split_options={"share": 0.25}, out=out)
    return out


def test_the_curve_as_json_is_that_of_the_recommender(newcomers_run: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", newcomers_run, "--curve", "--counts", "0, 2", "--cutoffs", "5,10", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    curve = Recommender.load(newcomers_run).newcomer_curve((0, 2), cutoffs=(5, 10))
    assert [point["given"] for point in result["curve"]] == [0, 2]
    for point, evaluation in zip(result["curve"], curve.points.values(), strict=True):
        assert {name: point[name] for name in evaluation.metrics} == evaluation.metrics
        assert point["intervals"]["ndcg@10"] == list(evaluation.intervals["ndcg@10"])
    assert result["baseline"]["name"] == "popularity"
    assert result["baseline"]["hr@5"] == curve.baseline.metrics["hr@5"]
    assert (result["protocol"], result["part"], result["newcomers"]) == ("full", "test", len(curve.points[0].rows))
    assert {"run", "model", "refit", "split_hash", "interval"} <= set(result)


def test_the_curve_as_a_table_and_a_picture(newcomers_run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "curve.svg"
    assert main(["evaluate", newcomers_run, "--curve", "--counts", "0,1,3", "--picture", str(picture)]) == 0
    shown = capsys.readouterr().out
    curve = Recommender.load(newcomers_run).newcomer_curve((0, 1, 3))
    assert "newcomers of the test part (full), no refit" in shown
    for evaluation in (*curve.points.values(), curve.baseline):
        low, high = evaluation.intervals["ndcg@10"]
        assert f"{evaluation.metrics['ndcg@10']:.4f}" in shown
        assert f"± {(high - low) / 2:.3f}" in shown
    assert f"a target of each of {len(curve.points[0].rows)} newcomers" in shown
    drawing = picture.read_text(encoding="utf-8")
    assert "ndcg@10 of newcomers by the number of their rows that are given" in drawing
    assert "rows given" in drawing


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--counts", "1,2"], "--counts belongs to the newcomer's curve; give --curve, too"),
        (["--picture", "a.svg"], "--picture belongs to the newcomer's curve; give --curve, too"),
        (["--curve", "--counts", "1,many"], "--counts takes whole numbers from 0 to 1,000, such as 0,1,3,5,10; got '1,many'"),
        (["--curve", "--counts", "5000"], "--counts takes whole numbers from 0 to 1,000"),
        (["--curve", "--picture", "a.gif"], "--picture a.gif ends in '.gif'"),
        (["--curve", "--part", "train"], "part is 'train'"),
        (["--curve", "--counts", "900"], "has 901 rows of items that were learned of; ask for shorter histories"),
    ],
)
def test_wrong_use_is_one_sentence(
    newcomers_run: str, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["evaluate", newcomers_run, *arguments]) == 2
    printed = capsys.readouterr().err
    assert message in printed
    assert printed.count("\n") == 1


def test_a_split_without_newcomers_is_one_sentence(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", run, "--curve"]) == 2
    assert "has no test users of whom nothing was learned; train with --split newcomers" in capsys.readouterr().err
