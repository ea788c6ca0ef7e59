from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gmlfm import Dataset, make_split
from gmlfm.errors import DataError, OptionError
from gmlfm.training.sampling.negatives import (
    NegativeSampler,
    TrainingNegatives,
    evaluation_candidates,
    implicit_instances,
    training_sampler,
)
from tests.data.arbitrary import plain, random_plain

pairs = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9)), max_size=40)


@given(pairs, st.lists(st.integers(1, 50), min_size=10, max_size=10) | st.none(), st.integers(0, 5))
def test_every_draw_maps_to_the_item_a_plain_walk_finds(
    excluded: list[tuple[int, int]], weights: list[int] | None, skipped: int
) -> None:
    """The slow twin: walk along the items, skip the user's own, and stop where the drawn weight is used up."""
    candidates = np.arange(skipped, 10, dtype=np.int32)
    given_weights = None if weights is None else np.array(weights[skipped:], np.int64)
    table = np.array(excluded, np.int32).reshape(-1, 2)
    sampler = NegativeSampler(table[:, 0], table[:, 1], 5, candidates, given_weights)
    for user in range(5):
        own = {item for owner, item in excluded if owner == user}
        line = [
            item
            for at, item in enumerate(candidates)
            if item not in own
            for _ in range(1 if given_weights is None else given_weights[at])
        ]
        assert int(sampler.free(np.array([user]))[0]) == len(set(line))
        drawn = np.arange(len(line))
        assert sampler.items_left(np.array([user], np.int32), drawn[None])[0].tolist() == line


def test_training_negatives_avoid_the_visible_positives_and_only_those() -> None:
    data = random_plain(30, 40, 500)
    split = make_split(data)
    users = data.user_numbers[split.train]
    drawn = TrainingNegatives(training_sampler(data, split), users, 50).of_epoch(0)
    met = set(zip(np.repeat(users, 50).tolist(), drawn.ravel().tolist(), strict=True))
    visible = set(zip(users.tolist(), data.item_numbers[split.train].tolist(), strict=True))
    assert met.isdisjoint(visible)
    for held_out in (split.validation, split.test):
        due = set(zip(data.user_numbers[held_out].tolist(), data.item_numbers[held_out].tolist(), strict=True)) - visible
        assert len(due & met) > 0.9 * len(due)
    score_all = {(user, item) for user in set(users.tolist()) for item in data.seen_items.tolist()}
    assert len(met) > 0.95 * len(score_all - visible)


@pytest.mark.parametrize("weighting", ["uniform", "popularity"])
def test_draws_follow_their_weights(weighting: str) -> None:
    data = random_plain(3, 8, 60)
    sampler = training_sampler(data, make_split(data, "none"), weighting, power=1.0)  # type: ignore[arg-type]
    empty = Dataset(data.schema, data.interactions[:1], data.context, data.users, data.items)
    free = training_sampler(empty, make_split(empty, "none"), candidates=data.seen_items)
    n = 200_000
    drawn = free.draw(np.array([0], np.int32), n, np.random.default_rng(0)).ravel()
    counts = np.bincount(drawn, minlength=8)
    assert counts[data.item_numbers[0]] == 0
    assert np.abs(counts[counts > 0] / n - 1 / 7).max() < 0.005
    if weighting == "popularity":
        popularity = np.bincount(data.item_numbers, minlength=8)
        weights = sampler._weights / sampler._weights.sum()
        assert np.allclose(weights, popularity / popularity.sum(), rtol=1e-6)


def test_negatives_are_fresh_or_fixed_and_seeded() -> None:
    data = random_plain(20, 50, 300)
    split = make_split(data)
    sampler, users = training_sampler(data, split), data.user_numbers[split.train]
    fresh, fixed = TrainingNegatives(sampler, users, 2), TrainingNegatives(sampler, users, 2, fresh=False)
    assert np.array_equal(fresh.of_epoch(1), fresh.of_epoch(1))
    assert not np.array_equal(fresh.of_epoch(0), fresh.of_epoch(1))
    assert np.array_equal(fixed.of_epoch(0), fixed.of_epoch(7))
    assert not np.array_equal(fresh.of_epoch(0), TrainingNegatives(sampler, users, 2, seed=1).of_epoch(0))


def test_evaluation_candidates_are_distinct_and_none_of_the_users_positives() -> None:
    data = random_plain(30, 150, 900)
    split = make_split(data)
    drawn, name = evaluation_candidates(data, split.test, n=60)
    positives = set(zip(data.user_numbers.tolist(), data.item_numbers.tolist(), strict=True))
    for row, items in zip(split.test, drawn, strict=True):
        assert len(set(items.tolist())) == 60
        assert all((int(data.user_numbers[row]), item) not in positives for item in items.tolist())
    assert evaluation_candidates(data, split.test, n=60)[1] == name
    assert evaluation_candidates(data, split.test, n=60, seed=1)[1] != name


def test_distinct_draws_are_uniform_whether_few_or_many_items_are_left() -> None:
    none = np.empty(0, np.int32)
    for n_items in (12, 40):
        sampler = NegativeSampler(none, none, 1, np.arange(n_items, dtype=np.int32))
        drawn = sampler.draw_distinct(np.zeros(6000, np.int32), 10, np.random.default_rng(0))
        assert np.abs(np.bincount(drawn.ravel(), minlength=n_items) / 60_000 - 1 / n_items).max() < 0.005


def test_instances_of_the_implicit_task() -> None:
    device = pl.Series("device", [f"d{n}" for n in range(200)])
    rng = np.random.default_rng(3)
    table = pl.DataFrame({"u": rng.integers(20, size=200), "i": rng.integers(60, size=200), "device": device})
    schema = {"interactions": {"user": "u", "item": "i", "context": {"device": "category"}}}
    data = Dataset.from_tables(table, schema=schema)
    instances = implicit_instances(data)
    n = data.n_interactions
    assert len(instances.labels) == 3 * n
    assert (instances.labels == 1).sum() == n
    positives = set(zip(data.user_numbers.tolist(), data.item_numbers.tolist(), strict=True))
    for user, item, label in zip(instances.users.tolist(), instances.items.tolist(), instances.labels.tolist(), strict=True):
        assert ((user, item) in positives) == (label == 1)
    assert np.array_equal(data.user_numbers[instances.rows], instances.users)
    sizes = [len(instances.split.train), len(instances.split.validation), len(instances.split.test)]
    assert sizes == [3 * n - round(0.6 * n) - round(0.3 * n), round(0.6 * n), round(0.3 * n)]
    assert implicit_instances(data).split.hash == instances.split.hash
    assert implicit_instances(data, seed=1).split.hash != instances.split.hash


def test_a_user_with_all_items_is_named() -> None:
    data = plain([1, 1, 2], [1, 2, 1])
    sampler = training_sampler(data, make_split(data, "none"))
    with pytest.raises(DataError, match=r"user 'u1' leaves 0 of 2 items to draw a negative from, 1 needed \(1 such users\)"):
        sampler.draw(data.user_numbers, 1, np.random.default_rng(0))
    with pytest.raises(DataError, match="user 'u2' leaves 1 of 2 items"):
        evaluation_candidates(data, np.array([2]), n=99)
    with pytest.raises(DataError, match="user 'u1'"):
        implicit_instances(data)
    with pytest.raises(OptionError, match="did you mean 'popularity'"):
        training_sampler(data, make_split(data, "none"), "populrity")  # type: ignore[arg-type]


@pytest.mark.parametrize("weighted", [False, True])
def test_many_draws_are_placed_by_the_compiled_search_as_by_the_plain_one(
    weighted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(3)
    users, items = rng.integers(0, 50, 400).astype(np.int32), rng.integers(0, 30, 400).astype(np.int32)
    weights = rng.integers(1, 9, 30) if weighted else None
    sampler = NegativeSampler(users, items, 50, np.arange(30, dtype=np.int32), weights)
    asked = np.flatnonzero(sampler.free(np.arange(50, dtype=np.int32)) > 0).astype(np.int32)
    plain = sampler.draw(asked, 40, np.random.default_rng(1))
    monkeypatch.setattr("gmlfm.training.sampling.negatives._MANY", 0)
    np.testing.assert_array_equal(sampler.draw(asked, 40, np.random.default_rng(1)), plain)
