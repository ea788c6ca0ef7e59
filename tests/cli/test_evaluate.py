from __future__ import annotations

import json
from typing import Any

import pytest

from gmlfm.cli import main
from gmlfm.recommender import Recommender


def test_metrics(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", run, "--protocol", "sampled", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert {"run", "model", "protocol", "part", "regime", "split_hash", "hr@10", "ndcg@10"} <= set(result)
    assert (result["protocol"], result["regime"]) == ("sampled", "no refit")
    assert main(["evaluate", run, "--part", "validation"]) == 0
    shown = capsys.readouterr().out
    assert "full, validation, no refit" in shown
    assert "hr@10" in shown


def test_cutoffs_are_handed_on(run: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    keywords: list[dict[str, Any]] = []
    evaluate = Recommender.evaluate

    def recorded(self: Recommender, cutoffs: tuple[int, ...] = (10,), **more: Any) -> Any:
        keywords.append({"cutoffs": cutoffs, **more})
        return evaluate(self, **more)

    monkeypatch.setattr(Recommender, "evaluate", recorded)
    assert main(["evaluate", run, "--protocol", "sampled", "--cutoffs", "5, 10,20", "--json"]) == 0
    assert keywords == [{"cutoffs": (5, 10, 20), "protocol": "sampled", "part": "test", "seed": 0}]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cutoffs", "5,many"], "--cutoffs takes whole numbers of 1 or more, such as 5,10,20; got '5,many'"),
        (["--cutoffs", "0"], "--cutoffs takes whole numbers"),
        (["--protocol", "ful"], "did you mean 'full'"),
    ],
)
def test_wrong_use_is_one_sentence(run: str, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["evaluate", run, *arguments]) == 2
    printed = capsys.readouterr().err
    assert message in printed
    assert printed.count("\n") == 1
