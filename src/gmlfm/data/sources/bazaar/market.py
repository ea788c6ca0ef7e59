"""How the market runs: listings appear, a buyer looks at a shelf of them, and buys the one they like best.

The truth is written from how people shop: favourite genres and brands, what a fair price is for such a thing in such a
condition, what the purse allows, how long one is willing to wait, how far one is willing to go, and the season. It is a
sum of looked-up likes and of thresholds; there is no vector of a thing anywhere in it, hence no product and no distance
of vectors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from gmlfm.data.sources.bazaar import world
from gmlfm.data.sources.bazaar.chance import Chance, Floats, Ints
from gmlfm.errors import OptionError

VERSION = 1
FIRST_DAY = 17_106  # 2016-11-01, in days since 1970
N_DAYS = 730
LEAST_PURCHASES = 5
_USERS_PER_BLOCK = 4096
SHELF = 40
_SHARE_OF_STOCKED = 0.5  # shelves whose first place shows a listing with many units
_PURCHASES_PER_STOCKED = 400
_CHARM = 0.3
WHIM = 0.55
_FAR = 3.0  # hundreds of kilometres

PARTS = ("genre", "brand", "deal", "purse", "condition", "delivery", "place", "season", "charm")


class _Columns:
    """Arrays of equal length, one entry a row, that are indexed and concatenated together."""

    def rows(self, chosen: Ints | slice) -> _Columns:
        return type(self)(**{column.name: getattr(self, column.name)[chosen] for column in fields(self)})  # type: ignore[arg-type]

    def __len__(self) -> int:
        return len(getattr(self, fields(self)[0].name))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Buyers(_Columns):
    """What a buyer is like. Only age and region are in the tables; the rest is the truth that models must estimate."""

    age: Ints
    region: Ints
    genre_likes: Floats  # (n, genres)
    brand: Ints  # the favourite, and the second
    second_brand: Ints
    thrift: Floats
    purse: Floats
    patience: Ints
    fussy: Floats
    only_unused: npt.NDArray[np.bool_]
    homebody: Floats
    festive: Floats

    def rows(self, chosen: Ints | slice) -> Buyers:
        return super().rows(chosen)  # type: ignore[return-value]


@dataclass(frozen=True)
class Listings(_Columns):
    """What is on offer. `charm` (the photos, the seller's manner) is seen by buyers and is in no table."""

    leaf: Ints
    brand: Ints
    condition: Ints
    method: Ints
    origin: Ints
    duration: Ints
    payer: Ints
    price: Ints
    fair: Floats  # log of fair price over price, from which the price was made
    charm: Floats

    def rows(self, chosen: Ints | slice) -> Listings:
        return super().rows(chosen)  # type: ignore[return-value]


@dataclass(frozen=True)
class Block:
    """Some buyers with all their purchases. `numbers` are the listings' item numbers, `bought` points into them."""

    first_buyer: int
    buyers: Buyers
    buyer: Ints
    bought: Ints
    day: Ints
    second: Ints
    listings: Listings
    numbers: Ints


@dataclass(frozen=True)
class Market:
    n_users: int = 3_855
    n_purchases: int = 46_712
    seed: int = 0

    def __post_init__(self) -> None:
        if self.n_users < 1 or self.n_purchases < 1:
            raise OptionError(f"a bazaar needs users and purchases; got {self.n_users:,} and {self.n_purchases:,}.")
        if self.n_purchases < LEAST_PURCHASES * self.n_users:
            raise OptionError(
                f"{self.n_purchases:,} purchases are fewer than {LEAST_PURCHASES} for each of {self.n_users:,} users; "
                "ask for more purchases or fewer users."
            )

    @property
    def name(self) -> str:
        """`bazaar` is the built-in one; any other carries its size and seed."""
        return "bazaar" if self == Market() else f"bazaar-{self.n_users}-{self.n_purchases}-{self.seed}"

    @property
    def n_stocked(self) -> int:
        """Listings with many units: the only items that sell more than once. They have the first item numbers."""
        return max(1, self.n_purchases // _PURCHASES_PER_STOCKED)

    @property
    def n_blocks(self) -> int:
        return -(-self.n_users // _USERS_PER_BLOCK)

    def stocked(self) -> Listings:
        """Their sellers are well known, which adds to their charm."""
        stocked = make_listings(Chance(self.seed, VERSION, 1), self.n_stocked)
        return replace(stocked, charm=stocked.charm + 0.4)

    def blocks(self) -> Iterator[Block]:
        stocked = self.stocked()
        for index in range(self.n_blocks):
            yield self.block(index, stocked)

    def block(self, index: int, stocked: Listings) -> Block:
        start, stop = index * _USERS_PER_BLOCK, min((index + 1) * _USERS_PER_BLOCK, self.n_users)
        before, after = (round(self.n_purchases * edge / self.n_users) for edge in (start, stop))
        chance = Chance(self.seed, VERSION, 2, index)
        buyers = _make_buyers(chance, stop - start)
        buyer = np.repeat(np.arange(stop - start), _purchases_each(chance, stop - start, after - before))
        n = len(buyer)
        day, second = chance.below(n, N_DAYS), chance.below(n, 86_400)
        shelf = make_listings(chance, n * SHELF)
        in_stock = np.flatnonzero(chance.uniform(n) < _SHARE_OF_STOCKED)
        # The best known of three: a few stocked listings are seen by many, most by few.
        shown = np.minimum.reduce([chance.below(len(in_stock), self.n_stocked) for _ in range(3)])
        liked = np.empty((SHELF, n))
        buyer_of_row = buyers.rows(buyer)
        for place in range(SHELF):
            liked[place] = liking(buyer_of_row, shelf.rows(slice(place * n, (place + 1) * n)), day)
        liked[0, in_stock] = liking(buyers.rows(buyer[in_stock]), stocked.rows(shown), day[in_stock])
        liked += WHIM * chance.gumbel(n * SHELF).reshape(SHELF, n)
        first_place = np.arange(n)
        first_place[in_stock] = n * SHELF + shown
        chosen = self._no_pair_twice(buyer, liked, first_place, n * SHELF)
        is_stocked = chosen >= n * SHELF
        sold_once = np.flatnonzero(~is_stocked)
        bought = np.where(is_stocked, chosen - n * SHELF, 0)
        bought[sold_once] = self.n_stocked + np.arange(len(sold_once))
        numbers = np.concatenate([np.arange(self.n_stocked), self.n_stocked + before + sold_once])
        listings = concatenated(stocked, shelf.rows(chosen[sold_once]))
        return Block(start, buyers, buyer, bought, day, second, listings, numbers)

    def _no_pair_twice(self, buyer: Ints, liked: Floats, first_place: Ints, first_stocked: int) -> Ints:
        """The best of each shelf; but a buyer takes the same stocked listing only once, and later the next best."""
        n = len(buyer)
        best = liked.argmax(axis=0)
        chosen = np.where(best == 0, first_place, best * n + np.arange(n))
        pairs = np.where(chosen >= first_stocked, buyer * (self.n_stocked + 1) + chosen - first_stocked + 1, 0)
        order = np.argsort(pairs, kind="stable")
        is_repeat = np.zeros(len(buyer), bool)
        is_repeat[order[1:]] = (np.diff(pairs[order]) == 0) & (pairs[order[1:]] > 0)
        second = (1 + liked[1:].argmax(axis=0)) * n + np.arange(n)
        return np.where(is_repeat, second, chosen)


def liking(buyers: Buyers, listings: Listings, day: Ints, parts: tuple[str, ...] = PARTS) -> Floats:
    """How much each buyer likes each listing on that day, row by row: the sum of the named parts."""
    genre = world.LEAF_GENRE[listings.leaf]
    result = np.zeros(len(genre))
    if "genre" in parts:
        result += buyers.genre_likes[np.arange(len(genre)), genre]
    if "brand" in parts:
        result += 1.9 * (listings.brand == buyers.brand) + 1.1 * (listings.brand == buyers.second_brand)
    if "deal" in parts:
        # A bargain attracts the thrifty; a price far too good is suspicious to everybody.
        result += buyers.thrift * listings.fair - 2.0 * (listings.fair > 0.6)
    if "purse" in parts:
        result -= 2.5 * np.minimum(np.maximum(listings.price / buyers.purse - 1.0, 0.0), 1.0)
    if "condition" in parts:
        result -= buyers.fussy * listings.condition + 2.2 * (buyers.only_unused & (listings.condition > 0))
    if "delivery" in parts:
        days = arrival_days(listings.method, listings.duration, listings.origin, buyers.region)
        result -= 0.9 * np.minimum(np.maximum(days - buyers.patience, 0), 4)
        result -= 0.4 * (listings.payer == 1)
    if "place" in parts:
        travels = world.GENRE_NAMES.index("Travel")
        far = np.abs(world.REGION_PLACE[listings.origin] - world.REGION_PLACE[buyers.region]) > _FAR
        result += far * np.where(genre == travels, 0.8, -buyers.homebody)
    if "season" in parts:
        result += buyers.festive * season(genre, day)
    if "charm" in parts:
        result += listings.charm
    return result


def season(genre: Ints, day: Ints) -> Floats:
    """0 outside, rising to 1 in the week of highest demand, over eight weeks before and after."""
    week = ((day + 305) % 365) // 7  # day 0 is the first of November
    peak = world.SEASON_WEEK[genre]
    distance = np.abs(week - peak)
    distance = np.minimum(distance, 52 - distance)
    return np.where(peak < 0, 0.0, np.maximum(0.0, 1.0 - distance / 8.0))


def arrival_days(method: Ints, duration: Ints, origin: Ints, region: Ints) -> Ints:
    """From payment to arrival: packing, the way, and the method; an e-ticket arrives within the packing time."""
    way = (np.abs(world.REGION_PLACE[origin] - world.REGION_PLACE[region]) / 6.0).astype(np.int64)
    days: Ints = np.maximum(np.array(world.DURATION_DAYS)[duration] + way + world.METHOD_DAYS[method], 1)
    return days


def _make_buyers(chance: Chance, n: int) -> Buyers:
    n_genres = len(world.GENRE_NAMES)
    age = chance.choose(n, world.AGE_SHARES)
    region = chance.choose(n, world.REGION_SHARES)
    likes = 0.7 * np.array(world.AGE_LIKES)[age] + 0.45 * chance.normal(n * n_genres).reshape(n, n_genres)
    rows = np.arange(n)
    favourite = likes.argmax(axis=1)
    likes[rows, favourite] += 1.6
    second = chance.below(n, n_genres)
    likes[rows, second] += 1.0
    return Buyers(
        age=age,
        region=region,
        genre_likes=likes,
        brand=_known_brand(chance, favourite),
        second_brand=_known_brand(chance, second),
        thrift=np.array([0.5, 1.5, 3.5])[chance.choose(n, (0.4, 0.4, 0.2))],
        purse=np.array([4e3, 8e3, 1.4e4, 2.6e4, 8e4])[chance.choose(n, (0.2, 0.3, 0.25, 0.17, 0.08))],
        patience=np.array([2, 4, 6, 9])[chance.choose(n, (0.3, 0.3, 0.25, 0.15))],
        fussy=np.array([0.05, 0.35, 0.8])[chance.choose(n, (0.4, 0.4, 0.2))],
        only_unused=chance.uniform(n) < 0.25,
        homebody=np.array([0.2, 0.9, 2.0])[chance.choose(n, (0.3, 0.4, 0.3))],
        festive=np.array([0.2, 1.0, 2.0])[chance.choose(n, (0.4, 0.4, 0.2))],
    )


def _known_brand(chance: Chance, genre: Ints) -> Ints:
    """A brand of the genre; the better known ones more often: the smaller of two draws."""
    n = len(genre)
    draws = [chance.below(n, world.N_BRANDS[genre]) for _ in range(2)]
    return world.FIRST_BRAND[genre] + np.minimum(*draws)


def make_listings(chance: Chance, n: int) -> Listings:
    leaf = chance.choose(n, world.LEAF_SHARES)
    genre = world.LEAF_GENRE[leaf]
    brand = _known_brand(chance, genre)
    method = chance.choose(n, world.METHOD_SHARES)
    electronic = method == world.E_TICKET
    condition = np.where(electronic, 0, chance.choose(n, world.CONDITION_SHARES))
    duration = np.where(electronic, 0, chance.choose(n, world.DURATION_SHARES))
    # Half of all courier parcels leave at once: duration goes with method.
    duration = np.where((method == world.METHOD_NAMES.index("courier")) & (chance.uniform(n) < 0.5), 0, duration)
    fame = 1.15 - 0.06 * np.minimum(brand - world.FIRST_BRAND[genre], 5)
    expected = world.LEAF_PRICE[leaf] * np.array(world.CONDITION_PRICE)[condition] * fame
    fair = np.round(0.28 * chance.normal(n), 6)
    # 1 / (1 + fair + fair^2 / 2) stands for exp(-fair): the same on every processor.
    price = np.maximum(np.rint(expected / (1.0 + fair + 0.5 * fair * fair) / 10.0) * 10.0, 300.0)
    return Listings(
        leaf=leaf,
        brand=brand,
        condition=condition,
        method=method,
        origin=chance.choose(n, world.REGION_SHARES),
        duration=duration,
        payer=(chance.uniform(n) < 0.3).astype(np.int64),
        price=price.astype(np.int64),
        fair=fair,
        charm=np.round(_CHARM * chance.normal(n), 6),
    )


def _purchases_each(chance: Chance, n_users: int, n_purchases: int) -> Ints:
    """Five each, and the rest in proportion to a long-tailed eagerness; the sum is exact."""
    eagerness = 1.0 / (0.06 + chance.uniform(n_users))
    edges = np.rint(np.cumsum(eagerness) / eagerness.sum() * (n_purchases - LEAST_PURCHASES * n_users)).astype(np.int64)
    each: Ints = LEAST_PURCHASES + np.diff(edges, prepend=0)
    return each


_Kind = TypeVar("_Kind", Buyers, Listings)


def concatenated(*blocks: _Kind) -> _Kind:
    names = [column.name for column in fields(blocks[0])]
    return type(blocks[0])(**{name: np.concatenate([getattr(block, name) for block in blocks]) for name in names})
