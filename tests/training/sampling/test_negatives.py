"""Negatives are items that a user did not choose, all alike."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gmlfm import Dataset, make_split
from gmlfm.errors import DataError
from gmlfm.training.sampling.negatives import NegativeSampler, TrainingNegatives, training_sampler
from tests.data.arbitrary import plain, random_plain

pairs = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9)), max_size=40)


@given(pairs, st.integers(0, 5))
def test_every_draw_maps_to_the_item_a_plain_walk_finds(excluded: list[tuple[int, int]], n_skipped: int) -> None:
    """The slow twin: walk along the items, skip the user's own, and stop at the drawn place."""
    candidates = np.arange(n_skipped, 10, dtype=np.int32)
    table = np.array(excluded, np.int32).reshape(-1, 2)
    sampler = NegativeSampler(table[:, 0], table[:, 1], 5, candidates)
    for user in range(5):
        chosen = {item for owner, item in excluded if owner == user}
        left = [item for item in candidates.tolist() if item not in chosen]
        assert int(sampler.free(np.array([user]))[0]) == len(left)
        drawn = np.arange(len(left))
        assert sampler.items_left(np.array([user], np.int32), drawn[None])[0].tolist() == left


def test_training_negatives_avoid_the_visible_positives_and_only_those() -> None:
    data = random_plain(30, 40, 500)
    split = make_split(data)
    users = data.user_numbers[split.train]
    drawn = TrainingNegatives(training_sampler(data, split.train), users, 50).of_epoch(0)
    negatives = set(zip(np.repeat(users, 50).tolist(), drawn.ravel().tolist(), strict=True))
    visible = set(zip(users.tolist(), data.item_numbers[split.train].tolist(), strict=True))
    assert negatives.isdisjoint(visible)
    for held_out in (split.validation, split.test):
        due = set(zip(data.user_numbers[held_out].tolist(), data.item_numbers[held_out].tolist(), strict=True)) - visible
        assert len(due & negatives) > 0.9 * len(due)
    all_pairs = {(user, item) for user in set(users.tolist()) for item in data.seen_items.tolist()}
    assert len(negatives) > 0.95 * len(all_pairs - visible)


def test_draws_are_uniform() -> None:
    data = random_plain(3, 8, 60)
    single = Dataset(data.schema, data.interactions[:1], data.context, data.users, data.items)
    sampler = training_sampler(single, make_split(single, "none").train, candidates=data.seen_items)
    n = 200_000
    drawn = sampler.draw(data.user_numbers[:1], n, np.random.default_rng(0)).ravel()
    counts = np.bincount(drawn, minlength=8)
    assert counts[data.item_numbers[0]] == 0
    assert np.abs(counts[counts > 0] / n - 1 / 7).max() < 0.005


def test_negatives_are_fresh_or_fixed_and_seeded() -> None:
    data = random_plain(20, 50, 300)
    train = make_split(data).train
    sampler, users = training_sampler(data, train), data.user_numbers[train]
    fresh, fixed = TrainingNegatives(sampler, users, 2), TrainingNegatives(sampler, users, 2, fresh=False)
    assert np.array_equal(fresh.of_epoch(1), fresh.of_epoch(1))
    assert not np.array_equal(fresh.of_epoch(0), fresh.of_epoch(1))
    assert np.array_equal(fixed.of_epoch(0), fixed.of_epoch(7))
    assert not np.array_equal(fresh.of_epoch(0), TrainingNegatives(sampler, users, 2, seed=1).of_epoch(0))


def test_distinct_draws_are_uniform_whether_few_or_many_items_are_left() -> None:
    nothing = np.empty(0, np.int32)
    for n_items in (12, 40):
        sampler = NegativeSampler(nothing, nothing, 1, np.arange(n_items, dtype=np.int32))
        drawn = sampler.draw_distinct(np.zeros(6000, np.int32), 10, np.random.default_rng(0))
        assert np.abs(np.bincount(drawn.ravel(), minlength=n_items) / 60_000 - 1 / n_items).max() < 0.005
        assert (np.diff(np.sort(drawn, axis=1), axis=1) > 0).all()


def test_distinct_draws_avoid_the_excluded_items_of_a_crowded_user() -> None:
    excluded = np.array([0, 3, 7], np.int32)
    sampler = NegativeSampler(np.full(3, 1, np.int32), excluded, 2, np.arange(10, dtype=np.int32))
    drawn = sampler.draw_distinct(np.array([1, 1], np.int32), 7, np.random.default_rng(0))
    assert [sorted(items) for items in drawn.tolist()] == [[1, 2, 4, 5, 6, 8, 9]] * 2


def test_a_user_with_all_items_is_named() -> None:
    data = plain([1, 1, 2], [1, 2, 1])
    sampler = training_sampler(data, make_split(data, "none").train)
    with pytest.raises(DataError, match=r"user 'u1' leaves 0 of 2 items to draw a negative from, 1 needed \(1 such users\)"):
        sampler.draw(data.user_numbers, 1, np.random.default_rng(0))
    unnamed = NegativeSampler(np.array([1], np.int32), np.array([0], np.int32), 2, np.array([0], np.int32))
    with pytest.raises(DataError, match="user number 1 leaves 0 of 1 items"):
        unnamed.draw(np.array([1], np.int32), 1, np.random.default_rng(0))


def test_many_draws_are_placed_by_the_compiled_search_as_by_the_plain_one(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    users, items = rng.integers(0, 50, 400).astype(np.int32), rng.integers(0, 30, 400).astype(np.int32)
    sampler = NegativeSampler(users, items, 50, np.arange(30, dtype=np.int32))
    free_users = np.flatnonzero(sampler.free(np.arange(50, dtype=np.int32)) > 0).astype(np.int32)
    drawn = sampler.draw(free_users, 40, np.random.default_rng(1))
    monkeypatch.setattr("gmlfm.training.sampling.negatives._MANY", 0)
    np.testing.assert_array_equal(sampler.draw(free_users, 40, np.random.default_rng(1)), drawn)
