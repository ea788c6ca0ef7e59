r"""The oracle: scores from the market's true preferences, the ceiling of every metric. It uses no model.

The best order of candidates is by how much likelier each is as the listing that was bought than as any other candidate (Bayes;
Neyman and Pearson). Let p(a) be the density of listings as they are made, c_{ud}(a) the chance that buyer u takes listing a
from a shelf on day d, c(a) its mean over buyers and days, and C the mean of c over listings as made (a shelf has 40 places and
one is taken, so about 1/40). Then the densities are

- of what u buys on day d:             p(a) c_{ud}(a) / C_{ud}
- of what somebody else buys later:    p(a) c(a) / C
- of what stays unsold:                p(a) (1 - c(a)) / (1 - C)

and of the candidates that can be had on day d a share s_d will be sold and 1 - s_d never, so the ratio is, but for C_{ud} which
is the same for all candidates,

.. math:: \frac{c_{ud}(a)}{s_d c(a) / C + (1 - s_d) (1 - c(a)) / (1 - C)}

The order is neither that of liking (s = 0, nearly), which forgets that others buy what is good, nor that of c_{ud} / c (s = 1),
which forgets that what is left over is seldom good. Listings with many units are compared with each other and are all sold:
s = 1. The chances follow from the market's own rule, the best of a shelf by liking plus a Gumbel whim.
"""

from __future__ import annotations

import numpy as np

from gmlfm.data.sources.bazaar.chance import Chance, Floats, Ints
from gmlfm.data.sources.bazaar.entities import Buyers, Listings, concatenated, make_listings
from gmlfm.data.sources.bazaar.market import (
    FIRST_DAY,
    N_DAYS,
    PARTS,
    SHELF,
    VERSION,
    WHIM,
    Market,
    liking,
    share_that_sells,
)
from gmlfm.errors import OptionError

ATTRIBUTE_PARTS = tuple(part for part in PARTS if part != "charm")
_MOST_BLOCKS = 16
_SHELVES, _BUYER_SAMPLE, _LISTING_SAMPLE = 16, 400, 8_192


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
            single = slice(market.n_stocked, None)
            listings = concatenated(listings, block.listings.rows(single))
            numbers = np.concatenate([numbers, block.numbers[single]])
            buyers = block.buyers if buyers is None else concatenated(buyers, block.buyers)
        assert buyers is not None
        self._buyers, self._listings, self._numbers = buyers, listings, numbers
        self._n_stocked = market.n_stocked
        self._rivals = self._sampled_rivals(Chance(market.seed, VERSION, 3))
        self._usual = self._usual_chance(listings, Chance(market.seed, VERSION, 4))
        chance = Chance(market.seed, VERSION, 6)
        self.mean_chance = float(self._usual_chance(make_listings(chance, _LISTING_SAMPLE), chance).mean())

    def score(self, users: Ints, item_numbers: Ints, days: Ints) -> Floats:
        """Pair by pair: log of the ratio above. Days since 1970; the market's own numbers of users and items."""
        places, day = np.searchsorted(self._numbers, item_numbers), days - FIRST_DAY
        usual, mean = self._usual[places], self.mean_chance
        sells = np.where(places < self._n_stocked, 1.0, share_that_sells(day))
        others = sells * usual / mean + (1.0 - sells) * (1.0 - usual) / (1.0 - mean)
        return np.log(self._chance(users, self._listings.rows(places), day)) - np.log(others)

    def _chance(self, users: Ints, listings: Listings, day: Ints) -> Floats:
        """To be the best of a shelf: a / (a + the other places' sum), a = exp(liking / whim), meaned over sampled shelves."""
        strength = np.exp(liking(self._buyers.rows(users), listings, day, self._parts) / WHIM)
        total = np.zeros(len(strength))
        for rivals in self._rivals:
            total += strength / (strength + rivals[users])
        return total / len(self._rivals)

    def _sampled_rivals(self, chance: Chance) -> list[Floats]:
        """For some sampled shelves what the other places add up to, by buyer."""
        sums = []
        for _ in range(_SHELVES):
            others, days = make_listings(chance, SHELF - 1), chance.below(SHELF - 1, N_DAYS)
            total = np.zeros(len(self._buyers))
            for place in range(SHELF - 1):
                same = np.full(len(self._buyers), place)
                total += np.exp(liking(self._buyers, others.rows(same), days[same], self._parts) / WHIM)
            sums.append(total)
        return sums

    def _usual_chance(self, listings: Listings, chance: Chance) -> Floats:
        """For each listing the average buyer's chance to take it, over sampled buyers and days."""
        total = np.zeros(len(listings))
        for user in chance.below(_BUYER_SAMPLE, len(self._buyers)):
            total += self._chance(np.full(len(listings), user), listings, chance.below(len(listings), N_DAYS))
        return total / _BUYER_SAMPLE
