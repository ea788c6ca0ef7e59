from __future__ import annotations

import json

import pytest

from gmlfm import Recommender
from gmlfm.cli import main


def test_sold_items_vanish_until_they_are_back(own_run: str, capsys: pytest.CaptureFixture[str]) -> None:
    best, second = Recommender.load(own_run).recommend(["b0000003"], 2)["item"].to_list()
    assert main(["sold", own_run, best, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"run": own_run, "sold": [best]}
    assert Recommender.load(own_run).recommend(["b0000003"], 1)["item"].to_list() == [second]
    assert main(["back", own_run, best]) == 0
    assert "1 item is marked back" in capsys.readouterr().out
    assert Recommender.load(own_run).recommend(["b0000003"], 1)["item"].to_list() == [best]
    assert main(["sold", own_run, best, second]) == 0
    assert "2 items are marked sold" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["sold", "back"])
def test_unknown_items_are_one_sentence(command: str, own_run: str, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main([command, own_run, "nothing"]) == 2
    printed = capsys.readouterr().err
    assert "the item 'nothing' is not in the catalogue; nothing was marked" in printed
    assert printed.count("\n") == 1
