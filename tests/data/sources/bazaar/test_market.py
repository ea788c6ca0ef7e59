from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from gmlfm.data.sources.bazaar import Block, Market, bazaar_dataset
from gmlfm.data.sources.bazaar import market as market_module
from gmlfm.data.sources.bazaar.market import FIRST_DAY, N_DAYS, season, share_that_sells
from gmlfm.errors import OptionError

_DAY = 86_400


@pytest.fixture(scope="module")
def block() -> Block:
    market = Market()
    return market.block(0, market.stocked())


def bought_mask(block: Block) -> np.ndarray:
    result = np.zeros(len(block.numbers), bool)
    result[block.bought] = True
    return result


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


def test_listings_wait_two_months_on_average_before_they_are_sold_and_stocked_ones_are_listed_at_the_start(
    block: Block,
) -> None:
    n_stocked = Market().n_stocked
    assert (block.listed[:n_stocked] == 0).all()
    assert (block.listed >= 0).all()
    single = block.bought >= n_stocked
    listed, sold = block.listed[block.bought[single]], block.sold_second[single]
    assert (listed <= sold).all()
    # Of sales in the second year few listings were cut off at the market's first day.
    late = sold > N_DAYS / 2 * _DAY
    assert (sold - listed)[late].mean() / _DAY == pytest.approx(60, rel=0.03)


def test_sold_and_unsold_listings_come_at_the_same_pace(block: Block) -> None:
    is_bought, n_stocked = bought_mask(block), Market().n_stocked
    share = []
    for start in (100, 200, 300):
        is_listed = (block.listed[n_stocked:] >= start * _DAY) & (block.listed[n_stocked:] < (start + 100) * _DAY)
        share.append(1 - is_bought[n_stocked:][is_listed].mean())
    # One unsold for ten sold, as long as hardly any listing is sold only after the tables end.
    assert share == pytest.approx([1 / 11] * 3, abs=0.015)


def test_an_item_number_does_not_tell_whether_it_was_sold(block: Block) -> None:
    is_bought, n_stocked = bought_mask(block)[Market().n_stocked :], Market().n_stocked
    numbers = block.numbers[n_stocked:]
    assert (np.diff(block.numbers) > 0).all()
    assert is_bought[numbers % 2 == 0].mean() == pytest.approx(is_bought[numbers % 2 == 1].mean(), abs=0.01)
    halves = np.array_split(is_bought, 2)
    assert halves[0].mean() == pytest.approx(halves[1].mean(), abs=0.01)


def test_the_share_that_sells_is_as_counted_in_the_tables() -> None:
    data = bazaar_dataset()
    availability, is_sold = data.availability, np.zeros(len(data.items), bool)
    assert availability is not None
    is_sold[data.seen_items] = True
    days = data.interactions["time"].to_numpy() // (_DAY * 1_000_000) - FIRST_DAY
    for day in (100, 300, 450):  # so early that hardly any listing is sold only after the tables end
        row = int(np.flatnonzero(days == day)[0])
        can_be_had = availability.is_available(
            np.arange(len(data.items)), np.full(len(data.items), availability.row_times[row])
        )
        expected = float(share_that_sells(np.array([day]))[0])
        assert is_sold[can_be_had & data.single_unit_items].mean() == pytest.approx(expected, abs=0.02)


def test_thousands_can_be_had_at_every_moment_of_the_second_half_and_not_ever_fewer_at_the_end() -> None:
    data = bazaar_dataset()
    availability = data.availability
    assert availability is not None
    times = np.sort(availability.row_times)
    count = [
        int((data.single_unit_items & (availability.start <= time) & (time <= availability.end)).sum())
        for time in times[[len(times) // 2, len(times) * 9 // 10, -1]]
    ]
    assert 5_000 < count[0] < count[1] < count[2] < 10_000


@pytest.mark.parametrize("share", [0.1, 1.0])
def test_tiny_markets_have_a_number_for_every_listing(share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(market_module, "_SHARE_OF_UNSOLD", share)
    for n_purchases in (5, 7, 13, 40):
        market = Market(1, n_purchases)
        (block,) = market.blocks()
        assert len(block.numbers) == len(block.listings) == len(block.listed)
        assert len(np.unique(block.numbers)) == len(block.numbers) <= market.n_stocked + 2 * n_purchases


def test_impossible_markets_are_refused() -> None:
    for users, purchases in ((0, 10), (10, 0), (-1, 5)):
        with pytest.raises(OptionError, match="a bazaar needs users and purchases"):
            Market(users, purchases)
    with pytest.raises(OptionError, match="fewer than 5 for each of 100 users"):
        Market(100, 499)
