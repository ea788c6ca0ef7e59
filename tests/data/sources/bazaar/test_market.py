from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from gmlfm.data.sources.bazaar import Market, bazaar_dataset
from gmlfm.data.sources.bazaar.market import season
from gmlfm.errors import OptionError


def test_seasons_come_back_every_year() -> None:
    day = np.arange(365)
    for genre in range(3):
        demand = season(np.full(365, genre), day)
        assert demand.max() == pytest.approx(1.0, abs=0.01)
        assert np.array_equal(demand, season(np.full(365, genre), day + 365))


def test_nobody_buys_the_same_thing_twice() -> None:
    data = bazaar_dataset(Market(n_users=50, n_purchases=5_000))
    assert data.n_interactions == 5_000
    assert data.interactions.select(pl.struct("user", "item").n_unique()).item() == 5_000


def test_impossible_markets_are_refused() -> None:
    for users, purchases in ((0, 10), (10, 0), (-1, 5)):
        with pytest.raises(OptionError, match="a bazaar needs users and purchases"):
            Market(users, purchases)
    with pytest.raises(OptionError, match="fewer than 5 for each of 100 users"):
        Market(100, 499)
