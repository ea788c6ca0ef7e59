from __future__ import annotations

import pytest

from gmlfm import load_dataset
from gmlfm.data.sources.bazaar import BUILT_IN, Market, built_in
from gmlfm.data.sources.bazaar.market import VERSION, VERSIONS
from gmlfm.data.sources.bazaar.versions import HASHES
from gmlfm.data.sources.catalogue import SOURCES
from gmlfm.errors import DataError


def test_the_newest_market_has_the_bare_name_and_the_older_ones_their_version() -> None:
    assert BUILT_IN == {"bazaar": Market(), "bazaar-v2": Market(version=2)}
    assert all(market.name == name for name, market in BUILT_IN.items())
    assert Market().version == VERSION == max(VERSIONS)
    assert set(BUILT_IN) <= set(SOURCES)


def test_every_version_has_a_hash_by_which_it_is_had() -> None:
    assert set(HASHES) == set(VERSIONS)
    for version, content_hash in HASHES.items():
        assert built_in(f"bazaar@{content_hash}") == Market(version=version)
        data = load_dataset(f"bazaar@{content_hash}")
        assert data.content_hash == content_hash
        assert data.name == Market(version=version).name
        assert load_dataset(data.name).content_hash == content_hash


def test_other_names_are_no_markets() -> None:
    for name in ("", "ml-1m", "bazaar-v1", "bazaar-v9", "Bazaar", "bazaar-100-1212-0"):
        assert built_in(name) is None


def test_a_hash_that_no_version_has_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(
        DataError, match=r"no built-in market has the hash 'ffff'; expected bazaar@09311d3f9fc7b2ce \(version 2\)"
    ):
        load_dataset("bazaar@ffff")
