from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from gmlfm.data.sources.bazaar import Block, Market, bazaar_dataset, world
from gmlfm.data.sources.bazaar import market as market_module
from gmlfm.data.sources.bazaar.chance import Chance
from gmlfm.data.sources.bazaar.habits import NOTHING, Mood, pulls
from gmlfm.data.sources.bazaar.market import FIRST_DAY, N_DAYS, SHELF, season, share_that_sells
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


def test_purchases_are_in_time_buyer_by_buyer(block: Block) -> None:
    key = block.buyer * N_DAYS * _DAY + block.sold_second
    assert (np.diff(key) >= 0).all()
    assert len(block.drift) == len(block.buyer) + len(block.buyers)


@pytest.mark.parametrize("has_habits", [False, True])
def test_choices_are_those_of_buyers_who_shop_one_after_another(has_habits: bool) -> None:
    chance, n, n_buyers = Chance(9), 400, 30
    buyer = chance.below(n, n_buyers)
    liked = chance.gumbel(SHELF * n).reshape(SHELF, n)
    liked[0] += 3.0  # so that stocked listings are wanted again
    leaf = chance.below(SHELF * n, len(world.LEAF_NAMES)).reshape(SHELF, n).astype(np.int8)
    stock = np.where(chance.uniform(n) < 0.7, chance.below(n, 3), -1)
    drift = chance.normal(n * len(world.GENRE_NAMES)).reshape(n, -1)
    mood = Mood.at_first(drift, n_buyers) if has_habits else None
    chosen = market_module._choose(buyer, liked, leaf, stock, mood)
    repeats, past, owned = 0, [[NOTHING, NOTHING] for _ in range(n_buyers)], [{-1} for _ in range(n_buyers)]
    for row, user in enumerate(buyer):
        values = liked[:, row].copy()
        if has_habits:
            recent = np.array(past[user])
            values += pulls(drift[[row]], recent[-1:], recent[-2:-1])[0, leaf[:, row]]
        if stock[row] in owned[user] - {-1}:
            repeats += int(values.argmax() == 0)
            values[0] = -np.inf
        best = int(values.argmax())
        assert chosen[row] == best
        past[user].append(int(leaf[best, row]))
        if best == 0:
            owned[user].add(int(stock[row]))
    assert repeats > 5


def of_version_2() -> Block:
    market = Market(version=2)
    return market.block(0, market.stocked())


def test_recent_purchases_say_more_about_the_next_one_than_old_ones(block: Block) -> None:
    def gain(market: Block) -> float:
        """How much more often a purchase is of the genre of the third before it, where no complement reaches, than of an old one."""
        genre = world.LEAF_GENRE[market.listings.leaf[market.bought]]
        rows = np.arange(14, len(genre))
        rows = rows[market.buyer[rows] == market.buyer[rows - 14]]
        return float((genre[rows] == genre[rows - 3]).mean() - (genre[rows] == genre[rows - 14]).mean())

    assert gain(block) > 0.035
    assert abs(gain(of_version_2())) < 0.015


def test_complements_are_bought_soon_after_one_another(block: Block) -> None:
    is_complement = np.array([[name in world.COMPLEMENTS[last] for name in world.LEAF_NAMES] for last in world.LEAF_NAMES])
    share = {}
    for version, market in ((3, block), (2, of_version_2())):
        leaf = market.listings.leaf[market.bought]
        for lag in (1, 2, 5):
            is_own = market.buyer[lag:] == market.buyer[:-lag]
            share[version, lag] = is_complement[leaf[:-lag], leaf[lag:]][is_own].mean()
    assert share[3, 1] > 0.3 > share[3, 2] > share[3, 5] + 0.02
    assert share[2, 1] == pytest.approx(share[2, 5], abs=0.01)
    assert share[2, 1] < 0.12


def test_buyers_and_what_is_stocked_are_those_of_version_2(block: Block) -> None:
    older = of_version_2()
    assert np.array_equal(block.buyers.genre_likes, older.buyers.genre_likes)
    assert np.array_equal(block.buyer, older.buyer)
    assert np.array_equal(block.listings.price[: Market().n_stocked], older.listings.price[: Market().n_stocked])
    assert len(older.drift) == 0


def test_markets_are_named_by_version_size_and_seed() -> None:
    assert Market().name == "bazaar"
    assert Market(version=2).name == "bazaar-v2"
    assert Market(100, 1_212).name == "bazaar-100-1212-0"
    assert Market(100, 1_212, 5, version=2).name == "bazaar-v2-100-1212-5"


def test_impossible_markets_are_refused() -> None:
    with pytest.raises(OptionError, match="the bazaar's versions are 2 and 3; got 1"):
        Market(version=1)
    for users, purchases in ((0, 10), (10, 0), (-1, 5)):
        with pytest.raises(OptionError, match="a bazaar needs users and purchases"):
            Market(users, purchases)
    with pytest.raises(OptionError, match="fewer than 5 for each of 100 users"):
        Market(100, 499)
