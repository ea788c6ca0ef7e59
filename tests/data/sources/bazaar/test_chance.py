from __future__ import annotations

import numpy as np
import pytest

from gmlfm.data.sources.bazaar.chance import Chance


def test_a_stream_is_named_by_its_numbers() -> None:
    assert np.array_equal(Chance(0, 1).normal(50), Chance(0, 1).normal(50))
    assert not np.array_equal(Chance(0, 1).normal(50), Chance(0, 2).normal(50))


def test_draws_follow_their_distributions() -> None:
    chance, n = Chance(7), 100_000
    assert chance.uniform(n).mean() == pytest.approx(0.5, abs=0.01)
    assert chance.normal(n).std() == pytest.approx(1.0, abs=0.02)
    assert chance.gumbel(n).mean() == pytest.approx(0.5772, abs=0.02)
    assert chance.exponential(n).mean() == pytest.approx(1.0, abs=0.02)
    assert (chance.exponential(n) > 2.0).mean() == pytest.approx(np.exp(-2.0), abs=0.01)
    assert set(chance.below(n, 5).tolist()) == set(range(5))
    assert np.bincount(chance.choose(n, (3, 0, 1))) / n == pytest.approx([0.75, 0.0, 0.25], abs=0.01)
