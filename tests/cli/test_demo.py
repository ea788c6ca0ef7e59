from __future__ import annotations

import json

import pytest

from gmlfm.cli import main


def test_the_demo_walks_from_the_market_to_its_ceiling(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--json"]) == 0
    told = capsys.readouterr()
    result = json.loads(told.out)
    assert result["oracle"] > result["popularity"] + 0.2
    for heading in ("The market", "One training row", "How far a recommender can come"):
        assert heading in told.err
