from __future__ import annotations

import numpy as np
import pytest

from gmlfm.data.sources.bazaar import world
from gmlfm.data.sources.bazaar.chance import Chance
from gmlfm.data.sources.bazaar.entities import concatenated, make_buyers, make_listings


def test_listings_are_of_a_kind() -> None:
    listings = make_listings(Chance(0), 20_000)
    assert np.array_equal(world.BRAND_GENRE[listings.brand], world.LEAF_GENRE[listings.leaf])
    electronic = listings.method == world.E_TICKET
    assert (listings.condition[electronic] == 0).all()
    assert (listings.price >= 300).all()
    assert (listings.price % 10 == 0).all()
    # A fair price is a low one.
    assert np.corrcoef(listings.fair, listings.price / world.LEAF_PRICE[listings.leaf])[0, 1] < -0.5


def test_buyers_have_the_shares_of_the_country() -> None:
    buyers = make_buyers(Chance(0), 20_000)
    shares = np.bincount(buyers.region, minlength=len(world.REGION_NAMES)) / len(buyers)
    assert shares == pytest.approx(world.REGION_SHARES / world.REGION_SHARES.sum(), abs=0.015)


def test_rows_and_blocks_keep_columns_together() -> None:
    listings = make_listings(Chance(0), 10)
    parts = concatenated(listings.rows(slice(0, 4)), listings.rows(np.arange(4, 10)))
    assert len(parts) == 10
    assert np.array_equal(parts.price, listings.price)
    assert np.array_equal(parts.charm, listings.charm)
