r"""Habits, which a buyer's own purchases show: a taste that drifts, and complements bought soon after one another.

Buyer u's pull towards a listing of category c at their purchase number t = 0, 1, ... is added to their liking of it:

.. math::
    \Delta_{ut}(c) = d_{ut}[g(c)] + A \, C[c_{t-1}, c] + \tfrac{1}{2} A \, C[c_{t-2}, c]

- g(c) is the category's genre. The drift d (one number a genre) is a random walk that is drawn back to 0, the buyer's lasting
  taste; it has the same spread at every t, and what it was m purchases ago tells \rho^m of what it is:

  .. math::
      d_{u0} = \sigma \epsilon_0, \qquad d_{ut} = \rho \, d_{u,t-1} + \sigma \sqrt{1 - \rho^2} \, \epsilon_t,
      \qquad \epsilon_t \sim N(0, I)

- c_{t-1} and c_{t-2} are the categories of the buyer's last two purchases, and C[b, c] is 1 where c is a complement of b
  (world.COMPLEMENTS), else 0. Before the first purchase nothing is a complement.

Both depend on what was bought and in which order, never on which item it was: items sell once, and the next one like it has
another id.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gmlfm.data.sources.bazaar import world
from gmlfm.data.sources.bazaar.chance import Chance, Floats, Ints

HABITS = ("drift", "complements")
DRIFT_SPREAD = 1.2
DRIFT_KEPT = 0.9
_DRIFT_STEP = round(DRIFT_SPREAD * math.sqrt(1.0 - DRIFT_KEPT**2), 9)
COMPLEMENT_APPEAL = 2.5
NOTHING = len(world.LEAF_NAMES)  # the category of a purchase that was not made; it has no complements


def _complements() -> Floats:
    """(leaves + 1, leaves): the appeal that a purchase of the row's category adds to the column's; the last row is NOTHING."""
    table = np.zeros((NOTHING + 1, NOTHING))
    for leaf, complements in world.COMPLEMENTS.items():
        for complement in complements:
            table[world.LEAF_NAMES.index(leaf), world.LEAF_NAMES.index(complement)] = COMPLEMENT_APPEAL
    return table


_COMPLEMENTS = _complements()


@dataclass
class Mood:
    """What the habits depend on while the market runs; `note` moves it on.

    drift: (rows, genres), one for each look at a shelf. last, before: (buyers,), the categories of each buyer's last two
    purchases, NOTHING where there are fewer.
    """

    drift: Floats
    last: Ints
    before: Ints

    @classmethod
    def at_first(cls, drift: Floats, n_buyers: int) -> Mood:
        return cls(drift, np.full(n_buyers, NOTHING), np.full(n_buyers, NOTHING))

    def pulls(self, rows: Ints, buyers: Ints) -> Floats:
        """(rows, leaves): the pull of every category on the buyers of these rows."""
        return pulls(self.drift[rows], self.last[buyers], self.before[buyers])

    def note(self, buyers: Ints, leaves: Ints) -> None:
        """Buyers, each named once, have bought these categories."""
        self.before[buyers] = self.last[buyers]
        self.last[buyers] = leaves


def no_drift() -> Floats:
    return np.zeros((0, len(world.GENRE_NAMES)))


def drift_paths(chance: Chance, each: Ints) -> Floats:
    """(purchases + buyers, genres): the drift at each purchase, buyer by buyer, and after it as it will be at the next one.

    each: how many purchases every buyer makes. Buyer u's rows begin at sum(each[:u]) + u.
    """
    n_genres = len(world.GENRE_NAMES)
    lengths = each + 1
    first = np.cumsum(lengths) - lengths
    drift = chance.normal(int(lengths.sum()) * n_genres).reshape(-1, n_genres)
    drift[first] *= DRIFT_SPREAD
    for step in range(1, int(lengths.max())):
        rows = first[lengths > step] + step
        drift[rows] = DRIFT_KEPT * drift[rows - 1] + _DRIFT_STEP * drift[rows]
    return drift


def pulls(drift: Floats, last: Ints, before: Ints) -> Floats:
    """(rows, leaves): what the habits add to the liking of each category, from (rows, genres), (rows,) and (rows,)."""
    return drift[:, world.LEAF_GENRE] + _COMPLEMENTS[last] + 0.5 * _COMPLEMENTS[before]


class States:
    """The states of buyers' habits: before each purchase and after the last, a row each, buyer by buyer.

    buyer, second, leaf: one for each purchase, buyer by buyer in the order of time; drift: as drift_paths has it.
    habits: those that pull; the others stand still.
    """

    def __init__(self, buyer: Ints, second: Ints, leaf: Ints, drift: Floats, habits: tuple[str, ...]) -> None:
        n_purchases = np.bincount(buyer)
        self.buyer = np.repeat(np.arange(len(n_purchases)), n_purchases + 1)
        self._end = int(second.max()) + 1
        self._keys = np.sort(buyer * (self._end + 1) + second)
        rows = np.arange(len(buyer)) + buyer
        self._drift = drift if "drift" in habits else np.zeros((len(self.buyer), len(world.GENRE_NAMES)))
        self._last, self._before = np.full(len(self.buyer), NOTHING), np.full(len(self.buyer), NOTHING)
        if "complements" in habits:
            self._last[rows + 1] = leaf
            self._before[rows + 1] = self._last[rows]

    def as_of(self, users: Ints, seconds: Ints) -> Ints:
        """The row of each user's state as of what they bought before that second of the market."""
        rows: Ints = np.searchsorted(self._keys, users * (self._end + 1) + np.clip(seconds, 0, self._end)) + users
        return rows

    def pulls(self, rows: Ints) -> Floats:
        """(rows, leaves), as the states stand."""
        return pulls(self._drift[rows], self._last[rows], self._before[rows])


def rounds(buyer: Ints) -> Iterator[Ints]:
    """The rows of all buyers' first purchases, then of their second ones, and so on; a buyer's rows in the order given."""
    order = np.argsort(buyer, kind="stable")
    is_first = np.diff(buyer[order], prepend=-1) != 0
    start = np.maximum.accumulate(np.where(is_first, np.arange(len(buyer)), 0))
    rank = np.arange(len(buyer)) - start
    by_rank = order[np.argsort(rank, kind="stable")]
    yield from np.split(by_rank, np.cumsum(np.bincount(rank))[:-1])
