from __future__ import annotations

import json

import pytest

from gmlfm import Recommender
from gmlfm.cli import main


@pytest.mark.parametrize("kind", ["item", "user"])
def test_the_nearest(kind: str, run: str, capsys: pytest.CaptureFixture[str]) -> None:
    recommender = Recommender.load(run)
    side = recommender.fitted.data.items if kind == "item" else recommender.fitted.data.users
    verb = recommender.similar_items if kind == "item" else recommender.similar_users
    capsys.readouterr()
    assert main(["similar", run, f"--{kind}", side.ids[0], "-n", "3", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows == verb(side.ids[0], 3).to_dicts()
    assert {kind, "distance", "rank"} <= set(rows[0])
    assert main(["similar", run, f"--{kind}", side.ids[0], "-n", "3"]) == 0
    assert rows[0][kind] in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "say what to compare with: --item ID or --user ID"),
        (["--item", "a", "--user", "b"], "say what to compare with"),
        (["--item", "nothing"], "the item 'nothing' is not in the catalogue"),
        (["--user", "nobody"], "the user 'nobody' is unknown"),
        (["--user", "b0000003", "-n", "0"], "n is 0; expected a whole number of 1 or more"),
    ],
)
def test_wrong_use_is_one_sentence(run: str, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["similar", run, *arguments]) == 2
    printed = capsys.readouterr().err
    assert message in printed
    assert printed.count("\n") == 1
