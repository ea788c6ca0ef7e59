from __future__ import annotations

import json
from pathlib import Path

import pytest

from gmlfm.bench.serve import market_run
from gmlfm.cli import main
from gmlfm.recommender import Recommender


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that reads what users did before. Read-only."""
    return market_run(300, tmp_path_factory.mktemp("bench") / "run", k=4, threads=1)


def test_one_rate_of_every_kind(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "measured.json"
    words = ["bench", "serve", str(folder), "--kinds", "recommend,fixed,mixed", "--rate", "20", "--seconds", "2"]
    assert main([*words, "--json", "--out", str(out)]) == 0
    measured = json.loads(capsys.readouterr().out)
    assert measured == json.loads(out.read_text())
    assert list(measured["held"]) == ["recommend", "fixed", "mixed"]
    for held in measured["held"].values():
        assert (held["requests"], held["errors"], held["rate"]) == (40, 0, 20.0)
        assert held["p50_ms"] <= held["p99_ms"] <= held["p100_ms"]
        assert held["cpu_ms_per_request"] > 0
        assert held["ready_seconds"] > 0
    assert measured["items"] >= 300
    assert measured["ratios"] == {}  # of one rate there are none
    assert Recommender.load(folder).observed.n == 0  # events went to a copy


@pytest.mark.slow
def test_the_highest_rate_of_a_market(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--items", "200", "--kinds", "recommend,fixed", "--seconds", "0.2", "--probe", "0.1", "--limit", "100000"]
    assert main(["bench", "serve", *words]) == 0
    printed = capsys.readouterr().out
    assert [line.split()[0] for line in printed.splitlines()[2:4]] == ["recommend", "fixed"]
    assert "recommend/fixed" in printed


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "say what to serve: a run folder, or --items N"),
        (["RUN", "--items", "100"], "say what to serve"),
        (["RUN", "--kinds", "recommend,all"], "'all' is no kind of load; expected recommend, fixed, mixed, events"),
        (["RUN", "--seconds", "0"], "--seconds is 0; expected a number above 0"),
        (["RUN", "--rate", "inf"], "--rate is inf; expected a number above 0"),
        (["RUN", "--n", "0"], "--n is 0; expected a whole number of 1 or more"),
        (["--items", "5"], "--items is 5; expected a whole number of 100 or more"),
        (["nowhere"], "is no run"),
    ],
)
def test_wrong_use_is_one_sentence(words: list[str], sentence: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "serve", *(str(folder) if word == "RUN" else word for word in words)]) == 2
    printed = capsys.readouterr().err
    assert sentence in printed
    assert printed.count("\n") == 1


def test_a_server_that_does_not_start_says_why(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "serve", str(folder), "--rate", "5", "--seconds", "1", "--workers", "100000"]) == 2
    assert "the server did not start: --workers is 100,000" in capsys.readouterr().err.replace("100000", "100,000")
