from __future__ import annotations

import numpy as np
import pytest

from gmlfm.data.sources.bazaar import world
from gmlfm.data.sources.bazaar.chance import Chance
from gmlfm.data.sources.bazaar.habits import (
    COMPLEMENT_APPEAL,
    DRIFT_KEPT,
    DRIFT_SPREAD,
    HABITS,
    NOTHING,
    Mood,
    States,
    drift_paths,
    pulls,
    rounds,
)

N_GENRES = len(world.GENRE_NAMES)


def leaf(name: str) -> int:
    return world.LEAF_NAMES.index(name)


def test_every_category_has_complements_and_is_one() -> None:
    assert set(world.COMPLEMENTS) == set(world.LEAF_NAMES)
    complements = [complement for group in world.COMPLEMENTS.values() for complement in group]
    assert set(complements) == set(world.LEAF_NAMES)
    assert all(name not in group for name, group in world.COMPLEMENTS.items())


def test_the_drift_is_the_walk_of_each_buyer_alone() -> None:
    each = np.array([3, 1, 0, 5])
    drift = drift_paths(Chance(4), each)
    noise = Chance(4).normal(drift.size).reshape(drift.shape)
    row = 0
    for n_purchases in each:
        walk = DRIFT_SPREAD * noise[row]
        for step in range(n_purchases + 1):
            if step:
                walk = DRIFT_KEPT * walk + DRIFT_SPREAD * np.sqrt(1 - DRIFT_KEPT**2) * noise[row]
            assert drift[row] == pytest.approx(walk, abs=1e-8)
            row += 1
    assert row == len(drift)


def test_what_the_taste_was_long_ago_tells_less_and_its_spread_stays() -> None:
    n_steps = 30
    drift = drift_paths(Chance(5), np.full(4_000, n_steps - 1)).reshape(4_000, n_steps, N_GENRES)
    assert drift[:, 0].std() == pytest.approx(DRIFT_SPREAD, rel=0.02)
    assert drift[:, -1].std() == pytest.approx(DRIFT_SPREAD, rel=0.02)
    for lag in (1, 5, 20):
        correlation = np.corrcoef(drift[:, -1].ravel(), drift[:, -1 - lag].ravel())[0, 1]
        assert correlation == pytest.approx(DRIFT_KEPT**lag, abs=0.02)


def test_the_pull_is_the_drift_of_the_genre_and_the_last_two_purchases_complements() -> None:
    drift = Chance(6).normal(2 * N_GENRES).reshape(2, N_GENRES)
    last, before = np.array([leaf("Opera"), leaf("Bus coupon")]), np.array([NOTHING, leaf("Spa")])
    pull = pulls(drift, last, before)
    for row in range(2):
        for name in world.LEAF_NAMES:
            expected = drift[row, world.LEAF_GENRE[leaf(name)]]
            for bought, share in ((last[row], 1.0), (before[row], 0.5)):
                if bought != NOTHING and name in world.COMPLEMENTS[world.LEAF_NAMES[bought]]:
                    expected += share * COMPLEMENT_APPEAL
            assert pull[row, leaf(name)] == pytest.approx(expected)
    assert pull[0, leaf("Hotel")] > drift[0, world.LEAF_GENRE[leaf("Hotel")]] + 1


def test_a_mood_moves_on_with_what_the_buyer_takes_and_with_nothing_else() -> None:
    mood = Mood.at_first(np.zeros((2, N_GENRES)), 2)
    assert not mood.pulls(np.arange(2), np.arange(2)).any()
    mood.note(np.array([1]), np.array([7]))
    mood.note(np.array([1]), np.array([9]))
    assert (mood.last.tolist(), mood.before.tolist()) == ([NOTHING, 9], [NOTHING, 7])


def test_rounds_take_each_buyers_rows_in_their_order() -> None:
    rounds_of_few = [sorted(rows.tolist()) for rows in rounds(np.array([2, 0, 2, 2, 1, 0]))]
    assert rounds_of_few == [[0, 1, 4], [2, 5], [3]]
    many = Chance(7).below(500, 20)
    rank = [int((many[:row] == many[row]).sum()) for row in range(500)]
    for number, rows in enumerate(rounds(many)):
        assert sorted(rows.tolist()) == [row for row in range(500) if rank[row] == number]


@pytest.fixture(scope="module")
def purchases() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Buyers, seconds, categories, drift."""
    each = np.array([4, 1, 6])
    buyer = np.repeat(np.arange(3), each)
    second = np.array([10, 20, 20, 30, 5, 1, 2, 3, 40, 50, 60])
    return buyer, second, np.arange(11) * 2, drift_paths(Chance(8), each)


def test_a_state_is_what_the_buyer_did_before_that_second(
    purchases: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
) -> None:
    buyer, second, leaves, drift = purchases
    states = States(buyer, second, leaves, drift, HABITS)
    for user in range(3):
        own = np.flatnonzero(buyer == user)
        for moment in (-5, 0, 1, 2, 10, 11, 20, 21, 30, 40, 61, 10_000):
            past = leaves[own][second[own] < moment]
            row = states.as_of(np.array([user]), np.array([moment]))
            assert states.buyer[row] == user
            recent = [NOTHING, NOTHING, *past]
            expected = pulls(drift[own[0] + user + len(past)][None], np.array(recent[-1:]), np.array(recent[-2:-1]))
            assert states.pulls(row) == pytest.approx(expected)


def test_habits_that_are_left_out_pull_nowhere(
    purchases: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
) -> None:
    rows = np.arange(14)
    whole, drift, complements, none = (
        States(*purchases, habits).pulls(rows) for habits in (HABITS, *((h,) for h in HABITS), ())
    )
    assert drift.any()
    assert complements.any()
    assert not none.any()
    assert drift + complements == pytest.approx(whole)
