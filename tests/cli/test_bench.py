from __future__ import annotations

import json

import pytest

from gmlfm.cli import main


def test_topn_beside_batches(market: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["bench", "topn", market, "--set", "k=8", "--threads", "1", "--rounds", "1"]
    assert main([*command, "--json"]) == 0
    measured = json.loads(capsys.readouterr().out)
    assert (measured["k"], measured["same_items"]) == (8, True)
    assert measured["ratio"] == pytest.approx(measured["baseline_seconds"] / measured["seconds"])
    assert main([*command, "--users", "5"]) == 0
    assert "baseline_seconds" in capsys.readouterr().out


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
