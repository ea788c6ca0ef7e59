from __future__ import annotations

import json

import pytest

from gmlfm.cli import bench, main
from gmlfm.data.sources import load_dataset


def test_topn_beside_batches(market: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["bench", "topn", market, "--set", "k=8", "--threads", "1", "--rounds", "1"]
    assert main([*command, "--json"]) == 0
    measured = json.loads(capsys.readouterr().out)
    assert (measured["k"], measured["same_items"]) == (8, True)
    assert measured["ratio"] == pytest.approx(measured["baseline_seconds"] / measured["seconds"])
    assert measured["users"] == measured["baseline_users"] == 120  # all of so few
    assert main([*command, "--users", "5"]) == 0
    assert "baseline_seconds" in capsys.readouterr().out


def test_topn_is_measured_on_as_many_users_as_a_minute_allows(
    market: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    n_items = len(load_dataset(market).seen_items)
    monkeypatch.setattr(bench, "_MOST_SCORES", 50 * n_items)
    monkeypatch.setattr(bench, "_MOST_PAIRS", 3 * n_items)
    command = ["bench", "topn", market, "--set", "k=8", "--threads", "1", "--rounds", "1", "--json"]
    assert main(command) == 0
    measured = json.loads(capsys.readouterr().out)
    assert (measured["users"], measured["baseline_users"], measured["same_items"]) == (50, 3, True)
    assert main([*command, "--users", "60"]) == 0
    assert json.loads(capsys.readouterr().out)["users"] == 60


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "nfm", "--set", "k=8"], "nothing to compare"),
        (["--rounds", "0"], "--rounds and --users must be 1 or more"),
        (["--k", "8"], "unknown option '--k'"),
        (["--set", "k=many"], "k is 'many'; expected a whole number"),
    ],
)
def test_wrong_use_is_one_sentence(market: str, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "topn", market, "--threads", "1", *arguments]) == 2
    printed = capsys.readouterr().err
    assert message in printed
    assert printed.count("\n") == 1
