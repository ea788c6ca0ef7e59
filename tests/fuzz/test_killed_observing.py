"""A process that observes is killed at random moments: every row that it answered is there. benchmarks/kills_observe.py is the
long version."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

from tests.fuzz.cases import generator, n_cases

KILLS: dict[str, Any] = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "kills_observe.py"))


def test_every_answered_observation_survives_a_kill(tmp_path: Path) -> None:
    run, number, rng = KILLS["begun"](tmp_path / "run"), 0, generator("killed observing")
    for _ in range(n_cases(3)):
        before = number
        number = KILLS["killed"](run, number, 10**6, int(rng.integers(1, 25)), 0.003 * float(rng.random()))
        assert number > before
        assert KILLS["lost_rows"](run, number) == []
    lost = KILLS["lost_rows"](run, number + 10)
    assert len(lost) >= 9  # at most one that was not answered
