from __future__ import annotations

import json
from pathlib import Path

import pytest

from gmlfm import Recommender
from gmlfm.cli import main
from tests.cli.conftest import QUICK


def test_metrics(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", run, "--protocol", "sampled", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert {"run", "model", "protocol", "part", "refit", "split_hash", "hr@10", "ndcg@10"} <= set(result)
    assert (result["protocol"], result["refit"]) == ("sampled", "none")
    assert main(["evaluate", run, "--part", "validation"]) == 0
    shown = capsys.readouterr().out
    assert "validation part (full: each item among all candidates), no refit" in shown
    assert "hr@10" in shown


def test_metrics_at_several_cutoffs(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", run, "--protocol", "sampled", "--cutoffs", "5, 10,20", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    expected = Recommender.load(run).evaluate(protocol="sampled", cutoffs=(5, 10, 20)).metrics
    assert {name: result[name] for name in expected} == expected
    assert {"hr@5", "hr@10", "hr@20"} <= set(expected)
    assert result["hr@5"] <= result["hr@10"] <= result["hr@20"]


def test_popularity_and_intervals_stand_beside_the_model(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", run, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    expected = Recommender.load(run).evaluate()
    assert result["baseline"]["name"] == "popularity"
    assert set(result["baseline"]) >= {*expected.metrics, "intervals"}
    assert result["intervals"]["hr@10"] == list(expected.intervals["hr@10"])
    assert result["standard_errors"]["ndcg@10"] == expected.errors["ndcg@10"]
    assert (result["interval"], result["tested_rows"]) == ("normal, over users", len(expected.rows))
    assert main(["evaluate", run, "--cutoffs", "3,7"]) == 0
    shown = capsys.readouterr().out
    assert "95 % interval" in shown
    assert "popularity" in shown
    assert "hr@7" in shown
    assert "{:.4f} - {:.4f}".format(*Recommender.load(run).evaluate(cutoffs=(3, 7)).intervals["hr@7"]) in shown


def test_a_sample_of_users(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", run, "--users", "7", "--seed", "2", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    expected = Recommender.load(run).evaluate(users=7, seed=2)
    assert (result["tested_users"], result["sample_seed"], result["hr@10"]) == (7, 2, expected.metrics["hr@10"])
    assert any("a sample of 7 of" in message for message in result["notes"])
    assert main(["evaluate", run, "--users", "7"]) == 0
    assert "standard errors of the sample: hr@10 0." in capsys.readouterr().out
    assert main(["evaluate", run, "--users", "100000"]) == 0
    assert "sample" not in capsys.readouterr().out


def test_predictions_stand_beside_the_training_mean(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"{n % 6},p{n % 9},{1 + n * 7 % 5}" for n in range(90)]
    (tmp_path / "stars.csv").write_text("user,item,stars\n" + "\n".join(rows) + "\n")
    columns = 'path = "stars.csv"\nuser = "user"\nitem = "item"\nlabel = "stars"\nrepeats = "keep"\n'
    (tmp_path / "dataset.toml").write_text(f"[interactions]\n{columns}")
    out = str(tmp_path / "run")
    assert main(["train", str(tmp_path), "--out", out, "--task", "rating", *QUICK]) == 0
    capsys.readouterr()
    assert main(["evaluate", out]) == 0
    shown = capsys.readouterr().out
    assert "training mean" in shown
    assert "rmse" in shown


@pytest.mark.parametrize(
    ("arguments", "message"), [(["--refit", "all"], "learned from its test rows"), (["--split", "none"], "no test rows")]
)
def test_nothing_is_evaluated_where_everything_was_learned(
    market: str, tmp_path: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "run")
    assert main(["train", market, "--out", out, "--model", "popularity", "--threads", "1", *arguments]) == 0
    shown = capsys.readouterr().out
    assert "gmlfm evaluate" not in shown
    assert f"Next: gmlfm recommend {out} --user b" in shown.replace("\n", "")
    assert main(["evaluate", out]) == 2
    printed = capsys.readouterr().err
    assert message in printed
    assert printed.count("\n") == 1


def test_newcomers_have_columns_of_their_own(market: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "run")
    assert main(["train", market, "--out", out, "--split", "newcomers", *QUICK]) == 0
    assert main(["evaluate", out, "--protocol", "sampled"]) == 0
    assert "new-new" in capsys.readouterr().out


def test_what_was_trained_as_published_is_marked(market: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "run")
    assert main(["train", market, "--out", out, "--model", "gml-fm-dnn", "--preset", "paper", *QUICK]) == 0
    assert main(["evaluate", out, "--protocol", "paper"]) == 0
    shown = capsys.readouterr().out
    assert "TRAINED AS PUBLISHED" in shown
    assert "the epoch was chosen on the test part and ties count as hits" in shown


@pytest.mark.parametrize(
    ("content", "message"), [("[]", "has the format None"), ('{"format": 2}', "is damaged"), (None, "is no run")]
)
def test_a_run_that_cannot_be_read_is_one_sentence(
    content: str | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "model").mkdir()
    if content is not None:
        (tmp_path / "model" / "run.json").write_text(content)
    assert main(["evaluate", str(tmp_path)]) == 2
    printed = capsys.readouterr().err
    assert message in printed
    assert printed.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cutoffs", "5,many"], "--cutoffs takes whole numbers of 1 or more, such as 5,10,20; got '5,many'"),
        (["--cutoffs", "0"], "--cutoffs takes whole numbers"),
        (["--protocol", "ful"], "did you mean 'full'"),
        (["--users", "0"], "--users is 0; expected a whole number of 1 or more"),
    ],
)
def test_wrong_use_is_one_sentence(run: str, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["evaluate", run, *arguments]) == 2
    printed = capsys.readouterr().err
    assert message in printed
    assert printed.count("\n") == 1
