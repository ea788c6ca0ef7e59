"""How the market runs: listings appear, a buyer looks at a shelf of them, and buys the one they like best.

A listing waits for a while before a buyer looks at it, in the same way whether it is bought or not. Of those that are not
bought a share stays in the tables, unsold: what can be had at a moment is what will sell later and what never will.

The truth is written from how people shop: favourite genres and brands, what a fair price is for such a thing in such a
condition, what the purse allows, how long one is willing to wait, how far one is willing to go, and the season. It is a
sum of looked-up likes and of thresholds; there is no vector of a thing anywhere in it, hence no product and no distance
of vectors. Buyers have habits besides (habits.py): the taste drifts, and what was bought last calls for its complements.

Version 2 is the same market, its buyers, shelves, days and whims, without habits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from gmlfm.data.sources.bazaar import world
from gmlfm.data.sources.bazaar.chance import Chance, Floats, Ints
from gmlfm.data.sources.bazaar.entities import Buyers, Listings, concatenated, make_buyers, make_listings
from gmlfm.data.sources.bazaar.habits import Mood, drift_paths, no_drift, rounds
from gmlfm.errors import OptionError

Bytes = npt.NDArray[np.int8]

VERSION = 3
VERSIONS = (2, VERSION)
# The version that each stream of draws came with: buyers, shelves and whims, listing times and unsold listings, habits.
_PURCHASES_VERSION, _LISTED_VERSION, _HABITS_VERSION = 1, 2, 3
FIRST_DAY = 17_106  # 2016-11-01, in days since 1970
N_DAYS = 730
LEAST_PURCHASES = 5
_USERS_PER_BLOCK = 4096
SHELF = 40
_SHARE_OF_STOCKED = 0.5  # shelves whose first place shows a listing with many units
_PURCHASES_PER_STOCKED = 400
WHIM = 0.55
_FAR = 3.0  # hundreds of kilometres
_LAST_SECOND = N_DAYS * 86_400
_SHARE_OF_UNSOLD = 0.1  # shelves of which a rejected listing stays in the tables
_MEAN_WAIT = 60 * 86_400  # seconds from a listing's time to the moment a buyer looks at it

PARTS = ("genre", "brand", "deal", "purse", "condition", "delivery", "place", "season", "charm")


@dataclass(frozen=True)
class Block:
    """Some buyers with all their purchases, and some listings that they left: those are unsold for good.

    `numbers` are the listings' item numbers, ascending; `bought` points into them; `listed` are their listing times in seconds
    from the market's first day. With habits a buyer's purchases are in the order of time.
    """

    first_buyer: int
    buyers: Buyers
    buyer: Ints
    bought: Ints
    day: Ints
    second: Ints
    listings: Listings
    numbers: Ints
    listed: Ints
    drift: Floats  # (purchases + buyers, genres), as drift_paths has it; without habits (0, genres)

    @property
    def sold_second(self) -> Ints:
        """Each purchase's time, in seconds from the market's first day."""
        return self.day * 86_400 + self.second


@dataclass(frozen=True)
class Market:
    n_users: int = 3_855
    n_purchases: int = 46_712
    seed: int = 0
    version: int = VERSION

    def __post_init__(self) -> None:
        if self.n_users < 1 or self.n_purchases < 1:
            raise OptionError(f"a bazaar needs users and purchases; got {self.n_users:,} and {self.n_purchases:,}.")
        if self.n_purchases < LEAST_PURCHASES * self.n_users:
            raise OptionError(
                f"{self.n_purchases:,} purchases are fewer than {LEAST_PURCHASES} for each of {self.n_users:,} users; "
                "ask for more purchases or fewer users."
            )
        if self.version not in VERSIONS:
            raise OptionError(f"the bazaar's versions are {' and '.join(map(str, VERSIONS))}; got {self.version}.")

    @property
    def name(self) -> str:
        """`bazaar` is the built-in one; an older version carries its number, another size or seed that too."""
        name = "bazaar" if self.version == VERSION else f"bazaar-v{self.version}"
        is_built_in = self == Market(version=self.version)
        return name if is_built_in else f"{name}-{self.n_users}-{self.n_purchases}-{self.seed}"

    @property
    def has_habits(self) -> bool:
        return self.version >= _HABITS_VERSION

    @property
    def n_stocked(self) -> int:
        """Listings with many units: the only items that sell more than once. They have the first item numbers."""
        return max(1, self.n_purchases // _PURCHASES_PER_STOCKED)

    @property
    def n_blocks(self) -> int:
        return -(-self.n_users // _USERS_PER_BLOCK)

    def stocked(self) -> Listings:
        """Their sellers are well known, which adds to their charm."""
        stocked = make_listings(Chance(self.seed, _PURCHASES_VERSION, 1), self.n_stocked)
        return replace(stocked, charm=stocked.charm + 0.4)

    def blocks(self) -> Iterator[Block]:
        stocked = self.stocked()
        for index in range(self.n_blocks):
            yield self.block(index, stocked)

    def block(self, index: int, stocked: Listings) -> Block:
        start, stop = index * _USERS_PER_BLOCK, min((index + 1) * _USERS_PER_BLOCK, self.n_users)
        before, after = (round(self.n_purchases * edge / self.n_users) for edge in (start, stop))
        chance = Chance(self.seed, _PURCHASES_VERSION, 2, index)
        buyers = make_buyers(chance, stop - start)
        each = _purchases_each(chance, stop - start, after - before)
        buyer = np.repeat(np.arange(stop - start), each)
        n = len(buyer)
        day, second = chance.below(n, N_DAYS), chance.below(n, 86_400)
        drift, mood = no_drift(), None
        if self.has_habits:
            moments = np.sort((buyer * N_DAYS + day) * 86_400 + second) - buyer * _LAST_SECOND
            day, second = moments // 86_400, moments % 86_400
            drift = drift_paths(Chance(self.seed, _HABITS_VERSION, 7, index), each)
            mood = Mood.at_first(drift[np.arange(n) + buyer], stop - start)
        shelf, chosen = self._shop(chance, buyers, buyer, day, stocked, mood)
        is_stocked = chosen >= len(shelf)
        sold = np.flatnonzero(~is_stocked)
        chance = Chance(self.seed, _LISTED_VERSION, 5, index)
        looked_at = day * 86_400 + second
        left, left_listed = self._unsold(chance, shelf, chosen, looked_at)
        mood_after = None if mood is None else replace(mood, drift=drift[np.cumsum(each + 1) - 1])
        later, later_listed = self._later(chance, buyers, n, stocked, mood_after)
        # Two numbers a purchase: what was bought has the first or the second by chance, and some unsold listing the other,
        # so that a number tells nothing. There are as many unsold ones as purchases at most, which binds in tiny markets alone.
        unsold = concatenated(left, later).rows(slice(n))
        is_second = chance.below(n, 2)
        free = np.argsort(chance.uniform(n), kind="stable")[: len(unsold)]
        first_number = self.n_stocked + 2 * (before + np.arange(n))
        numbers = np.concatenate([(first_number + is_second)[sold], (first_number + 1 - is_second)[free]])
        order = np.argsort(numbers)
        places = np.empty(len(order), np.int64)
        places[order] = self.n_stocked + np.arange(len(order))
        bought = np.where(is_stocked, chosen - len(shelf), 0)
        bought[sold] = places[: len(sold)]
        listed = np.concatenate([listed_before(chance, looked_at[sold]), np.concatenate([left_listed, later_listed])[:n]])
        return Block(
            first_buyer=start,
            buyers=buyers,
            buyer=buyer,
            bought=bought,
            day=day,
            second=second,
            listings=concatenated(stocked, concatenated(shelf.rows(chosen[sold]), unsold).rows(order)),
            numbers=np.concatenate([np.arange(self.n_stocked), numbers[order]]),
            listed=np.concatenate([np.zeros(self.n_stocked, np.int64), listed[order]]),
            drift=drift,
        )

    def _shop(
        self, chance: Chance, buyers: Buyers, buyer: Ints, day: Ints, stocked: Listings, mood: Mood | None
    ) -> tuple[Listings, Ints]:
        """A shelf for each row, all first places first, and what is bought: a place of it, or beyond it a stocked listing.

        The mood moves on with what is bought.
        """
        n = len(buyer)
        shelf, buyer_of_row = make_listings(chance, n * SHELF), buyers.rows(buyer)
        in_stock = np.flatnonzero(chance.uniform(n) < _SHARE_OF_STOCKED)
        # The best known of three: a few stocked listings are seen by many, most by few.
        shown = np.minimum.reduce([chance.below(len(in_stock), self.n_stocked) for _ in range(3)])
        liked = np.empty((SHELF, n))
        for place in range(SHELF):
            liked[place] = liking(buyer_of_row, shelf.rows(slice(place * n, (place + 1) * n)), day)
        liked[0, in_stock] = liking(buyer_of_row.rows(in_stock), stocked.rows(shown), day[in_stock])
        liked += WHIM * chance.gumbel(n * SHELF).reshape(SHELF, n)
        leaf: Bytes = shelf.leaf.reshape(SHELF, n).astype(np.int8)
        stock = np.full(n, -1)
        leaf[0, in_stock], stock[in_stock] = stocked.leaf[shown], shown
        best = _choose(buyer, liked, leaf, stock, mood)
        return shelf, np.where((best == 0) & (stock >= 0), n * SHELF + stock, best * n + np.arange(n))

    def _unsold(self, chance: Chance, shelf: Listings, chosen: Ints, looked_at: Ints) -> tuple[Listings, Ints]:
        """Of a share of the shelves a listing that was not bought, and its listing time; it is never sold.

        A shelf's first place is left out, since it may have shown a stocked listing.
        """
        n = len(chosen)
        rows = np.flatnonzero(chance.uniform(n) < _SHARE_OF_UNSOLD)
        bought = np.where(chosen[rows] < len(shelf), chosen[rows] // n, 0)
        place = 1 + chance.below(len(rows), SHELF - 1 - (bought > 0))
        place += (bought > 0) & (place >= bought)
        return shelf.rows(place * n + rows), listed_before(chance, looked_at[rows])

    def _later(
        self, chance: Chance, buyers: Buyers, n_purchases: int, stocked: Listings, mood: Mood | None
    ) -> tuple[Listings, Ints]:
        """What is listed before the market's last day and looked at after it: bought or not, in the tables it is unsold.

        Without these the last weeks would hold ever fewer listings that sell. Waiting times are exponential, hence without
        memory: seen from the last day both the time since the listing and the time to the look are distributed like them.
        """
        n = round(n_purchases * _MEAN_WAIT / _LAST_SECOND)
        buyer = chance.below(n, len(buyers))
        looked_at = _LAST_SECOND + waiting_times(chance, n)
        mood = None if mood is None else replace(mood, drift=mood.drift[buyer])
        shelf, chosen = self._shop(chance, buyers, buyer, looked_at // 86_400, stocked, mood)
        left, _ = self._unsold(chance, shelf, chosen, looked_at)
        listings = concatenated(shelf.rows(chosen[chosen < len(shelf)]), left)
        return listings, np.maximum(_LAST_SECOND - waiting_times(chance, len(listings)), 0)


def _choose(buyer: Ints, liked: Floats, leaf: Bytes, stock: Ints, mood: Mood | None) -> Ints:
    """The place of each row's shelf that is bought, in rounds: every buyer's first row, then their second, and so on.

    liked, leaf: (SHELF, rows), the liking without habits and the category. stock: the stocked listing in the first place, or
    -1; a buyer takes the same one only once, and later the next best.
    """
    previous = _previous_look(buyer, stock)
    has_it = np.zeros(len(buyer), bool)  # after this row the buyer has the stocked listing that the row shows
    chosen = np.empty(len(buyer), np.int64)
    for rows in rounds(buyer):
        values = liked[:, rows]
        if mood is not None:
            pull = mood.pulls(rows, buyer[rows])
            values += pull.ravel().take(leaf[:, rows] + np.arange(0, pull.size, pull.shape[1]))
        had_it = (previous[rows] >= 0) & has_it[previous[rows]]
        values[0, had_it] = -np.inf
        best = values.argmax(axis=0)
        chosen[rows] = best
        has_it[rows] = had_it | (best == 0)
        if mood is not None:
            mood.note(buyer[rows], leaf[best, rows])
    return chosen


def _previous_look(buyer: Ints, stock: Ints) -> Ints:
    """For each row the same buyer's row before it that shows the same stocked listing, or -1."""
    rows = np.flatnonzero(stock >= 0)
    order = rows[np.lexsort((stock[rows], buyer[rows]))]
    is_same = (np.diff(buyer[order]) == 0) & (np.diff(stock[order]) == 0)
    previous = np.full(len(buyer), -1)
    previous[order[1:][is_same]] = order[:-1][is_same]
    return previous


def waiting_times(chance: Chance, n: int) -> Ints:
    """Seconds from listings' times to the moments at which buyers look at them: exponential."""
    return np.rint(_MEAN_WAIT * chance.exponential(n)).astype(np.int64)


def listed_before(chance: Chance, looked_at: Ints) -> Ints:
    """Listing times, a waiting time before the look at it and no earlier than the market's first day."""
    listed: Ints = np.maximum(looked_at - waiting_times(chance, len(looked_at)), 0)
    return listed


def share_that_sells(day: Ints) -> Floats:
    r"""Of the listings with one unit that can be had on a day, the share that somebody buys, if after the last day.

    With w days of waiting and a share q of shelves that leave an unsold listing, and by day: w days' purchases are waiting, and
    q of all that were looked at until now or are waiting remain,

    .. math:: s_d = \frac{w}{w + q (d + w)}
    """
    wait = _MEAN_WAIT / 86_400
    share: Floats = wait / (wait + _SHARE_OF_UNSOLD * (day.astype(np.float64) + wait))
    return share


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


def _purchases_each(chance: Chance, n_users: int, n_purchases: int) -> Ints:
    """Five each, and the rest in proportion to a long-tailed eagerness; the sum is exact."""
    eagerness = 1.0 / (0.06 + chance.uniform(n_users))
    edges = np.rint(np.cumsum(eagerness) / eagerness.sum() * (n_purchases - LEAST_PURCHASES * n_users)).astype(np.int64)
    each: Ints = LEAST_PURCHASES + np.diff(edges, prepend=0)
    return each
