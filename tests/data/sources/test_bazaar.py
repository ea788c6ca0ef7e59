from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from gmlfm import Dataset, Split, load_dataset, make_split
from gmlfm.data.sources.bazaar import Market, Oracle, bazaar_dataset, write_bazaar
from gmlfm.data.sources.bazaar.market import PARTS, season
from gmlfm.data.sources.bazaar.oracle import ATTRIBUTE_PARTS
from gmlfm.data.sources.bazaar.tables import item_number
from gmlfm.errors import DataError, OptionError
from gmlfm.training.sampling.negatives import evaluation_candidates

# A change of the market is a new version with a name of its own (bazaar-v2), never another hash here.
BAZAAR_HASH = "d9673de29f43429f"
SMALL = Market(n_users=300, n_purchases=3_600)


@pytest.fixture(scope="module")
def market() -> tuple[Dataset, Split, np.ndarray]:
    data = bazaar_dataset()
    split = make_split(data)
    negatives, _ = evaluation_candidates(data, split.test)
    return data, split, np.concatenate([data.item_numbers[split.test][:, None], negatives], axis=1)


def hit_rate(scores: np.ndarray) -> float:
    """HR@10 of the first column, in expectation over tied orders."""
    better = (scores[:, 1:] > scores[:, :1]).sum(axis=1)
    tied = (scores[:, 1:] == scores[:, :1]).sum(axis=1)
    return float(np.clip((10 - better) / (tied + 1), 0, 1).mean())


def oracle_hit_rate(market: tuple[Dataset, Split, np.ndarray], without: tuple[str, ...] = ()) -> float:
    data, split, candidates = market
    n, width = candidates.shape
    numbers = item_number(data.items.ids).to_numpy()
    users = np.repeat(data.user_numbers[split.test].astype(np.int64), width)
    days = np.repeat(data.interactions["time"].to_numpy()[split.test] // 86_400_000_000, width)
    return hit_rate(Oracle(Market(), without).score(users, numbers[candidates.ravel()], days).reshape(n, width))


def test_the_built_in_market_is_the_same_everywhere() -> None:
    data = load_dataset("bazaar")
    assert data.content_hash == BAZAAR_HASH
    assert (len(data.seen_users), data.n_interactions) == (3_855, 46_712)
    assert 45_800 < len(data.seen_items) < 46_300
    assert data.warnings == ()
    counts = np.bincount(data.item_numbers)[data.seen_items]
    assert (counts == 1).mean() > 0.99
    assert counts.max() >= 5
    assert np.bincount(data.user_numbers).min() >= 5


def test_another_seed_is_another_market() -> None:
    hashes = {bazaar_dataset(Market(300, 3_600, seed)).content_hash for seed in (0, 0, 1)}
    assert len(hashes) == 2


def test_titles_are_readable() -> None:
    data = bazaar_dataset(SMALL)
    assert data.items.titles is not None
    assert data.items.titles.str.contains(r"^.+ by .+, .+, .+, ships in .+$").all()


def test_the_oracle_is_far_above_popularity_and_lives_on_attributes(market: tuple[Dataset, Split, np.ndarray]) -> None:
    data, split, candidates = market
    popularity = np.bincount(data.item_numbers[split.train], minlength=len(data.items))
    ceiling = oracle_hit_rate(market)
    assert ceiling > 0.7
    assert ceiling - hit_rate(popularity[candidates]) > 0.2
    assert oracle_hit_rate(market, without=ATTRIBUTE_PARTS) < ceiling - 0.4


@pytest.mark.parametrize("part", ["genre", "brand", "place", "delivery"])
def test_each_strong_taste_is_worth_something(market: tuple[Dataset, Split, np.ndarray], part: str) -> None:
    assert oracle_hit_rate(market, without=(part,)) < oracle_hit_rate(market) - 0.01


def test_seasons_come_back_every_year() -> None:
    day = np.arange(365)
    for genre in range(3):
        demand = season(np.full(365, genre), day)
        assert demand.max() == pytest.approx(1.0, abs=0.01)
        assert np.array_equal(demand, season(np.full(365, genre), day + 365))


def test_written_in_blocks_it_is_the_market_in_memory(tmp_path: Path) -> None:
    large = Market(n_users=9_000, n_purchases=60_000)
    assert large.n_blocks > 1
    done: list[tuple[int, int]] = []
    write_bazaar(large, tmp_path / "m", lambda *told: done.append(told))
    assert done[-1] == (large.n_blocks, large.n_blocks)
    data = load_dataset(tmp_path / "m")
    assert data.content_hash == bazaar_dataset(large).content_hash
    assert data.n_interactions == 60_000
    assert data.name == "bazaar-9000-60000-0"


def test_nobody_buys_the_same_thing_twice() -> None:
    data = bazaar_dataset(Market(n_users=50, n_purchases=5_000))
    assert data.n_interactions == 5_000
    assert data.interactions.select(pl.struct("user", "item").n_unique()).item() == 5_000


def test_impossible_markets_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for users, purchases in ((0, 10), (10, 0), (-1, 5)):
        with pytest.raises(OptionError, match="a bazaar needs users and purchases"):
            Market(users, purchases)
    with pytest.raises(OptionError, match="fewer than 5 for each of 100 users"):
        Market(100, 499)
    with pytest.raises(OptionError, match="is no part of the truth"):
        Oracle(SMALL, without=("colour",))
    with pytest.raises(OptionError, match="too many for that"):
        Oracle(Market(1_000_000, 12_000_000))
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
    with pytest.raises(DataError, match=r"need about .* GiB, but .* has 0\.0 GiB free"):
        write_bazaar(SMALL, tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


def test_parts_of_the_truth_have_names() -> None:
    assert set(ATTRIBUTE_PARTS) < set(PARTS)
