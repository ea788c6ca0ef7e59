"""benchmarks/serve_faults.py in short."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from gmlfm import Recommender

FAULTS: dict[str, Any] = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "serve_faults.py"), run_name="faults")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(FAULTS["market_run"](300, tmp_path / "run", k=4))


@pytest.mark.slow
def test_reloads_fail_and_mix_nothing(folder: Path) -> None:
    outcome = FAULTS["reloads"](folder, 10, 60.0)
    assert outcome.faults == []
    assert outcome.figures["runs that answered"] > 1
    assert outcome.figures["events kept"] > 0


@pytest.mark.slow
def test_kills_lose_nothing_that_was_acknowledged(folder: Path) -> None:
    outcome = FAULTS["kills"](folder, 2, 60.0)
    assert outcome.faults == []
    assert outcome.figures["events acknowledged"] > 0


def test_a_lost_event_is_seen(folder: Path) -> None:
    recommender = Recommender.load(folder)
    events = FAULTS["Events"](recommender)
    rows = [events.row(), events.row()]
    recommender.observe([{"user": user, "item": item, "time": at} for user, item, at in rows[:1]])
    assert FAULTS["lost"](folder, rows) == rows[1:]


def test_a_mixed_answer_is_seen() -> None:
    expected = [("a", 1.0), ("b", 0.5)]

    def answer(*scored: tuple[str, float]) -> dict[str, Any]:
        return {"items": [{"item": item, "score": score} for item, score in scored]}

    assert FAULTS["mixed"](answer(("a", 1.0), ("b", 0.5)), expected) == ""
    assert "instead of" in FAULTS["mixed"](answer(("b", 1.0), ("a", 0.5)), expected)
    assert "differ" in FAULTS["mixed"](answer(("a", 1.0), ("b", 0.4)), expected)


def test_an_outcome_says_what_failed() -> None:
    outcome = FAULTS["Outcome"]("kills", {"kills": 3, "ready s": 1.25}, ["one is lost"])
    assert str(outcome).split() == "kills FAILED kills 3, ready s 1.25 one is lost".split()
