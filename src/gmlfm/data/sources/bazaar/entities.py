"""Who buys and what is on offer: how buyers and listings are made."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from gmlfm.data.sources.bazaar import world
from gmlfm.data.sources.bazaar.chance import Chance, Floats, Ints

_CHARM = 0.3


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


def make_buyers(chance: Chance, n: int) -> Buyers:
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


_Kind = TypeVar("_Kind", Buyers, Listings)


def concatenated(*blocks: _Kind) -> _Kind:
    names = [column.name for column in fields(blocks[0])]
    return type(blocks[0])(**{name: np.concatenate([getattr(block, name) for block in blocks]) for name in names})
