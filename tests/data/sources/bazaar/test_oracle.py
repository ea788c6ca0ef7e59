from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from gmlfm import Dataset, Split, make_split
from gmlfm.data.sources.bazaar import Market, Oracle, bazaar_dataset
from gmlfm.data.sources.bazaar import oracle as oracle_module
from gmlfm.data.sources.bazaar.habits import HABITS
from gmlfm.data.sources.bazaar.market import FIRST_DAY, PARTS
from gmlfm.data.sources.bazaar.oracle import ATTRIBUTE_PARTS
from gmlfm.data.sources.bazaar.tables import item_number
from gmlfm.errors import OptionError
from gmlfm.evaluation.protocols import evaluate_held_out

Scores = Callable[[Any, Any, Any], Any]


@dataclass
class Scorer:
    """A ranker by scores of (users, items, rows), each of the candidates' shape."""

    scores: Scores

    def score_pairs(self, users: Any, items: Any, rows: Any = None) -> Any:
        wide = np.broadcast_to(users[:, None], items.shape), items, np.broadcast_to(rows[:, None], items.shape)
        return self.scores(*wide).astype(np.float32)

    def score_all(self, users: Any, items: Any, rows: Any = None) -> Any:
        return self.score_pairs(users, np.tile(items, (len(users), 1)), rows)


@dataclass
class HeldOut:
    """The test part of the built-in market and its metrics under a score."""

    data: Dataset
    split: Split

    def metrics(self, scores: Scores) -> tuple[float, float]:
        metrics = evaluate_held_out(Scorer(scores), self.data, self.split, "test", "sampled").metrics
        return metrics["hr@10"], metrics["ndcg@10"]

    def of_oracle(self, oracle: Oracle) -> tuple[float, float]:
        numbers = item_number(self.data.items.ids).to_numpy()
        seconds = self.data.interactions["time"].to_numpy() // 1_000_000

        def scores(users: Any, items: Any, rows: Any) -> Any:
            flat = users.ravel().astype(np.int64), numbers[items.ravel()], seconds[rows.ravel()]
            return oracle.score(*flat).reshape(items.shape)

        return self.metrics(scores)


@pytest.fixture(scope="module")
def held_out() -> HeldOut:
    data = bazaar_dataset()
    return HeldOut(data, make_split(data))


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    return Oracle(Market())


@pytest.fixture(scope="module")
def ceiling(held_out: HeldOut, oracle: Oracle) -> tuple[float, float]:
    return held_out.of_oracle(oracle)


def test_who_knows_only_what_was_sold_before_is_at_chance(held_out: HeldOut, ceiling: tuple[float, float]) -> None:
    sales = np.bincount(held_out.data.item_numbers[held_out.split.train], minlength=len(held_out.data.items))
    for known in (sales, sales == 0):
        assert held_out.metrics(lambda users, items, rows, known=known: known[items]) == pytest.approx((0.1, 0.0454), abs=0.002)
    assert ceiling[0] > 0.75
    assert ceiling[1] > 0.42


def test_listing_times_tell_little(held_out: HeldOut) -> None:
    listed = held_out.data.items.listed
    assert listed is not None
    age = listed.to_numpy().astype(np.int64) // 1_000_000 - FIRST_DAY * 86_400
    assert held_out.metrics(lambda users, items, rows: age[items])[0] < 0.25
    assert held_out.metrics(lambda users, items, rows: -age[items])[0] < 0.1


def test_the_oracle_depends_on_attributes(held_out: HeldOut, ceiling: tuple[float, float]) -> None:
    assert held_out.of_oracle(Oracle(Market(), without=ATTRIBUTE_PARTS))[0] < ceiling[0] - 0.4


@pytest.mark.parametrize("part", ["genre", "brand", "place", "delivery"])
def test_each_strong_taste_raises_the_hit_rate(held_out: HeldOut, ceiling: tuple[float, float], part: str) -> None:
    assert held_out.of_oracle(Oracle(Market(), without=(part,)))[0] < ceiling[0] - 0.01


@pytest.mark.parametrize(("without", "loss"), [(("drift",), 0.02), (("complements",), 0.04), (HABITS, 0.08)])
def test_who_does_not_know_the_habits_falls_behind(
    held_out: HeldOut, ceiling: tuple[float, float], without: tuple[str, ...], loss: float
) -> None:
    assert held_out.of_oracle(Oracle(Market(), without=without))[1] < ceiling[1] - loss


@pytest.mark.parametrize("shift", [-1, 1])
def test_the_state_is_that_of_the_scored_row_and_of_none_beside_it(
    held_out: HeldOut, oracle: Oracle, ceiling: tuple[float, float], shift: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    states, as_of = oracle._states, oracle._states.as_of

    def beside(users: Any, seconds: Any) -> Any:
        rows = as_of(users, seconds)
        moved = np.clip(rows + shift, 0, len(states.buyer) - 1)
        return np.where(states.buyer[moved] == users, moved, rows)

    monkeypatch.setattr(states, "as_of", beside)
    assert held_out.of_oracle(oracle)[1] < ceiling[1] - 0.05


def test_the_oracle_of_version_2_has_its_figures() -> None:
    market = Market(version=2)
    data = bazaar_dataset(market)
    held_out = HeldOut(data, make_split(data))
    assert held_out.of_oracle(Oracle(market)) == pytest.approx((0.803, 0.471), abs=0.0005)
    # It has no habits to leave out.
    assert held_out.of_oracle(Oracle(market, without=HABITS)) == pytest.approx((0.803, 0.471), abs=0.0005)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_the_ceiling_counts_with_what_sells_and_with_what_does_not(
    held_out: HeldOut, oracle: Oracle, ceiling: tuple[float, float], share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 1: how much likelier this buyer is than another, as if all were sold; 0: as if nobody else bought.
    monkeypatch.setattr(oracle_module, "share_that_sells", lambda day: np.full(len(day), share))
    hit_rate, ndcg = held_out.of_oracle(oracle)
    assert hit_rate < ceiling[0] - 0.005
    assert ndcg < ceiling[1] - 0.015


def test_chances_to_be_bought_add_up_to_about_a_purchase_a_shelf(oracle: Oracle) -> None:
    assert oracle.mean_chance == pytest.approx(1 / 40, rel=0.15)


def test_parts_of_the_truth_have_names() -> None:
    assert set(ATTRIBUTE_PARTS) < {*PARTS, *HABITS}


def test_impossible_oracles_are_refused() -> None:
    with pytest.raises(OptionError, match="is no part of the truth"):
        Oracle(Market(n_users=300, n_purchases=3_600), without=("colour",))
    with pytest.raises(OptionError, match="too many for that"):
        Oracle(Market(1_000_000, 12_000_000))
