from __future__ import annotations

import numpy as np
import pytest

from gmlfm import Dataset, Split, make_split
from gmlfm.data.sources.bazaar import Market, Oracle, bazaar_dataset
from gmlfm.data.sources.bazaar.market import PARTS
from gmlfm.data.sources.bazaar.oracle import ATTRIBUTE_PARTS
from gmlfm.data.sources.bazaar.tables import item_number
from gmlfm.errors import OptionError
from gmlfm.evaluation.candidates import evaluation_candidates


@pytest.fixture(scope="module")
def ranked_market() -> tuple[Dataset, Split, np.ndarray]:
    data = bazaar_dataset()
    split = make_split(data)
    negatives, _ = evaluation_candidates(data, split.test)
    return data, split, np.concatenate([data.item_numbers[split.test][:, None], negatives], axis=1)


def hit_rate(scores: np.ndarray) -> float:
    """HR@10 of the first column, in expectation over tied orders."""
    better = (scores[:, 1:] > scores[:, :1]).sum(axis=1)
    tied = (scores[:, 1:] == scores[:, :1]).sum(axis=1)
    return float(np.clip((10 - better) / (tied + 1), 0, 1).mean())


def oracle_hit_rate(ranked_market: tuple[Dataset, Split, np.ndarray], without: tuple[str, ...] = ()) -> float:
    data, split, candidates = ranked_market
    n, width = candidates.shape
    numbers = item_number(data.items.ids).to_numpy()
    users = np.repeat(data.user_numbers[split.test].astype(np.int64), width)
    days = np.repeat(data.interactions["time"].to_numpy()[split.test] // 86_400_000_000, width)
    return hit_rate(Oracle(Market(), without).score(users, numbers[candidates.ravel()], days).reshape(n, width))


@pytest.fixture(scope="module")
def ceiling(ranked_market: tuple[Dataset, Split, np.ndarray]) -> float:
    return oracle_hit_rate(ranked_market)


def test_the_oracle_is_far_above_popularity_and_depends_on_attributes(
    ranked_market: tuple[Dataset, Split, np.ndarray], ceiling: float
) -> None:
    data, split, candidates = ranked_market
    popularity = np.bincount(data.item_numbers[split.train], minlength=len(data.items))
    assert ceiling > 0.7
    assert ceiling - hit_rate(popularity[candidates]) > 0.2
    assert oracle_hit_rate(ranked_market, without=ATTRIBUTE_PARTS) < ceiling - 0.4


@pytest.mark.parametrize("part", ["genre", "brand", "place", "delivery"])
def test_each_strong_taste_raises_the_hit_rate(
    ranked_market: tuple[Dataset, Split, np.ndarray], ceiling: float, part: str
) -> None:
    assert oracle_hit_rate(ranked_market, without=(part,)) < ceiling - 0.01


def test_parts_of_the_truth_have_names() -> None:
    assert set(ATTRIBUTE_PARTS) < set(PARTS)


def test_impossible_oracles_are_refused() -> None:
    with pytest.raises(OptionError, match="is no part of the truth"):
        Oracle(Market(n_users=300, n_purchases=3_600), without=("colour",))
    with pytest.raises(OptionError, match="too many for that"):
        Oracle(Market(1_000_000, 12_000_000))
