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

Habits belong to the liking: the oracle adds the pull of the buyer's state as of the scored moment, which is the drift of the
purchase that comes next and the categories of the last two before it. The mean c(a) is over buyers, days and their states.
"""

from __future__ import annotations

import numpy as np

from gmlfm.data.sources.bazaar.chance import Chance, Floats, Ints
from gmlfm.data.sources.bazaar.entities import Listings, concatenated, make_listings
from gmlfm.data.sources.bazaar.habits import HABITS, NOTHING, States
from gmlfm.data.sources.bazaar.market import (
    FIRST_DAY,
    N_DAYS,
    PARTS,
    SHELF,
    WHIM,
    Market,
    liking,
    share_that_sells,
)
from gmlfm.errors import OptionError

ATTRIBUTE_PARTS = (*(part for part in PARTS if part != "charm"), *HABITS)
_STREAM = 2  # the version of the market with which the oracle's own draws came
_MOST_BLOCKS = 16
_SHELVES, _BUYER_SAMPLE, _LISTING_SAMPLE = 16, 400, 8_192


class Oracle:
    """Knows each buyer's tastes and habits and each listing's charm; what it cannot know is the whim of the moment.

    without: parts of the truth that it leaves out ('genre', ..., 'drift', 'complements'), to measure how much they matter.
    """

    def __init__(self, market: Market, without: tuple[str, ...] = ()) -> None:
        for part in without:
            if part not in (*PARTS, *HABITS):
                raise OptionError(f"'{part}' is no part of the truth; the parts are {', '.join((*PARTS, *HABITS))}.")
        if market.n_blocks > _MOST_BLOCKS:
            raise OptionError(f"the oracle holds the whole market in memory; {market.n_users:,} users are too many for that.")
        self._parts = tuple(part for part in PARTS if part not in without)
        stocked, blocks = market.stocked(), list(market.blocks())
        single = slice(market.n_stocked, None)
        self._buyers = concatenated(*(block.buyers for block in blocks))
        self._listings = concatenated(stocked, *(block.listings.rows(single) for block in blocks))
        self._numbers = np.concatenate([np.arange(market.n_stocked), *(block.numbers[single] for block in blocks)])
        self._n_stocked = market.n_stocked
        self._states = States(
            np.concatenate([block.first_buyer + block.buyer for block in blocks]),
            np.concatenate([block.sold_second for block in blocks]),
            np.concatenate([block.listings.leaf[block.bought] for block in blocks]),
            np.concatenate([block.drift for block in blocks]),
            habits=tuple(habit for habit in HABITS if habit not in without) if market.has_habits else (),
        )
        self._rivals = self._sampled_rivals(Chance(market.seed, _STREAM, 3))
        self._usual = self._usual_chance(self._listings, Chance(market.seed, _STREAM, 4))
        chance = Chance(market.seed, _STREAM, 6)
        self.mean_chance = float(self._usual_chance(make_listings(chance, _LISTING_SAMPLE), chance).mean())

    def score(self, users: Ints, item_numbers: Ints, seconds: Ints) -> Floats:
        """Pair by pair: log of the ratio above. Seconds since 1970; the market's own numbers of users and items.

        A buyer's state is as of what they bought before that second.
        """
        second = seconds - FIRST_DAY * 86_400
        places, day = np.searchsorted(self._numbers, item_numbers), second // 86_400
        usual, mean = self._usual[places], self.mean_chance
        sells = np.where(places < self._n_stocked, 1.0, share_that_sells(day))
        others = sells * usual / mean + (1.0 - sells) * (1.0 - usual) / (1.0 - mean)
        states, of_row = np.unique(self._states.as_of(users, second), return_inverse=True)
        return np.log(self._chance(states, of_row, self._listings.rows(places), day)) - np.log(others)

    def _chance(self, states: Ints, of_row: Ints, listings: Listings, day: Ints) -> Floats:
        """To be the best of a shelf: a / (a + the other places' sum), a = exp(liking / whim), meaned over sampled shelves.

        of_row: for each listing the place of its buyer's state among `states`.
        """
        buyer = self._states.buyer[states]
        factors = np.exp(self._states.pulls(states) / WHIM)
        likings = liking(self._buyers.rows(buyer[of_row]), listings, day, self._parts)
        strength = np.exp(likings / WHIM) * factors[of_row, listings.leaf]
        total = np.zeros(len(strength))
        for rivals in self._rivals:
            others = (rivals[buyer] * factors).sum(axis=1)
            total += strength / (strength + (others if len(others) == 1 else others[of_row]))
        return total / len(self._rivals)

    def _sampled_rivals(self, chance: Chance) -> list[Floats]:
        """For some sampled shelves what the other places add up to without habits, (buyers, categories)."""
        sums = []
        for _ in range(_SHELVES):
            others, days = make_listings(chance, SHELF - 1), chance.below(SHELF - 1, N_DAYS)
            total = np.zeros((len(self._buyers), NOTHING))
            for place in range(SHELF - 1):
                same = np.full(len(self._buyers), place)
                strength = np.exp(liking(self._buyers, others.rows(same), days[same], self._parts) / WHIM)
                total[:, others.leaf[place]] += strength
            sums.append(total)
        return sums

    def _usual_chance(self, listings: Listings, chance: Chance) -> Floats:
        """For each listing the average buyer's chance to take it, over sampled buyers, their states and days."""
        total, of_row = np.zeros(len(listings)), np.zeros(len(listings), np.int64)
        for user in chance.below(_BUYER_SAMPLE, len(self._buyers)):
            days = chance.below(len(listings), N_DAYS)
            state = self._states.as_of(np.array([user]), days[:1] * 86_400)
            total += self._chance(state, of_row, listings, days)
        return total / _BUYER_SAMPLE
