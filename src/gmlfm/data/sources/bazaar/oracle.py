"""The oracle: scores from the market's true preferences, the ceiling of every metric. It uses no model.

A listing that is in the catalogue was bought by somebody. What ranks best is therefore not how much a buyer likes it but
how much likelier this buyer is to be that somebody than another is (Bayes: the buyer's chance to take it from a shelf, over
the average buyer's). Both chances follow from the market's own rule: the best of a shelf by liking plus a Gumbel whim.
"""

from __future__ import annotations

import numpy as np

from gmlfm.data.sources.bazaar.chance import Chance, Floats, Ints
from gmlfm.data.sources.bazaar.market import (
    FIRST_DAY,
    N_DAYS,
    PARTS,
    SHELF,
    VERSION,
    WHIM,
    Buyers,
    Listings,
    Market,
    concatenated,
    liking,
    make_listings,
)
from gmlfm.errors import OptionError

ATTRIBUTE_PARTS = tuple(part for part in PARTS if part != "charm")
_MOST_BLOCKS = 16
_SHELF_SAMPLE, _BUYER_SAMPLE = 512, 400


class Oracle:
    """Knows each buyer's tastes and each listing's charm; what it cannot know is the whim of the moment.

    without: parts of the truth that it leaves out ('genre', 'brand', ...), to measure how much they matter.
    """

    def __init__(self, market: Market, without: tuple[str, ...] = ()) -> None:
        for part in without:
            if part not in PARTS:
                raise OptionError(f"'{part}' is no part of the truth; the parts are {', '.join(PARTS)}.")
        if market.n_blocks > _MOST_BLOCKS:
            raise OptionError(f"the oracle holds the whole market in memory; {market.n_users:,} users are too many for that.")
        self._parts = tuple(part for part in PARTS if part not in without)
        stocked = market.stocked()
        buyers: Buyers | None = None
        listings, numbers = stocked, np.arange(market.n_stocked)
        for block in market.blocks():
            sold_once = np.arange(market.n_stocked, len(block.listings))
            listings = concatenated(listings, block.listings.rows(sold_once))
            numbers = np.concatenate([numbers, block.numbers[sold_once]])
            buyers = block.buyers if buyers is None else concatenated(buyers, block.buyers)
        assert buyers is not None
        self._buyers, self._listings, self._numbers = buyers, listings, numbers
        self._rivals = self._usual_rivals(Chance(market.seed, VERSION, 3))
        self._usual = self._usual_chance(Chance(market.seed, VERSION, 4))

    def score(self, users: Ints, item_numbers: Ints, days: Ints) -> Floats:
        """Pair by pair: log of the user's chance over the average buyer's. Days since 1970; the market's own numbers."""
        places = np.searchsorted(self._numbers, item_numbers)
        chance = self._chance(users, places, days - FIRST_DAY)
        return np.log(chance) - np.log(self._usual[places])

    def _chance(self, users: Ints, places: Ints, day: Ints) -> Floats:
        """To be the best of a shelf: a / (a + the other places' sum), a = exp(liking / whim)."""
        liked = liking(self._buyers.rows(users), self._listings.rows(places), day, self._parts)
        strength = np.exp(liked / WHIM)
        return strength / (strength + self._rivals[users])

    def _usual_rivals(self, chance: Chance) -> Floats:
        """For each buyer what the other places of a shelf usually add up to."""
        shelf: Listings = make_listings(chance, _SHELF_SAMPLE)
        days = chance.below(_SHELF_SAMPLE, N_DAYS)
        total = np.zeros(len(self._buyers))
        for place in range(_SHELF_SAMPLE):
            same = np.full(len(self._buyers), place)
            total += np.exp(liking(self._buyers, shelf.rows(same), days[same], self._parts) / WHIM)
        return (SHELF - 1) * total / _SHELF_SAMPLE

    def _usual_chance(self, chance: Chance) -> Floats:
        """For each listing the average buyer's chance to take it, over sampled buyers and days."""
        total = np.zeros(len(self._listings))
        places = np.arange(len(self._listings))
        for user in chance.below(_BUYER_SAMPLE, len(self._buyers)):
            days = chance.below(len(places), N_DAYS)
            total += self._chance(np.full(len(places), user), places, days)
        return total / _BUYER_SAMPLE
