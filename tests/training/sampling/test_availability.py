"""Negatives where things sell once are items that can be had at the row's time."""

from __future__ import annotations

import logging

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gmlfm import Dataset, make_split
from gmlfm.errors import DataError
from gmlfm.training.sampling import availability
from gmlfm.training.sampling.availability import AvailabilitySampler, AvailableItems, training_negatives
from gmlfm.training.sampling.batches import BatchOptions
from gmlfm.training.sampling.negatives import NegativeSampler

intervals = st.lists(st.tuples(st.integers(-1, 9), st.integers(0, 12)), min_size=1, max_size=15)
pairs = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 14)), max_size=20)
moments = st.lists(st.integers(-1, 12), min_size=1, max_size=30)


@given(intervals, pairs, moments)
def test_what_a_row_leaves_is_what_a_plain_walk_finds(
    spans: list[tuple[int, int]], excluded: list[tuple[int, int]], times: list[int]
) -> None:
    start, end = (np.array(side, np.int64) for side in zip(*spans, strict=True))
    owned = np.array([pair for pair in excluded if pair[1] < len(spans)], np.int32).reshape(-1, 2)
    sampler = AvailabilitySampler(owned[:, 0], owned[:, 1], AvailableItems(start, end, np.array(times, np.int64)))
    rng = np.random.default_rng(0)
    for time in sorted(set(times)):
        there = [item for item, (first, last) in enumerate(spans) if first <= time <= last]
        assert sampler.available.count(np.array([time])).tolist() == [len(there)]
        for user in range(3):
            left = {item for item in there if (user, item) not in set(map(tuple, owned.tolist()))}
            users, moment = np.array([user], np.int32), np.array([time], np.int64)
            assert set(sampler.items_left(user, time).tolist()) == left
            assert sampler.has_items(users, moment).tolist() == [bool(left)]
            if left:
                assert set(sampler.draw(users, 200, rng, moment).ravel().tolist()) == left
            else:
                with pytest.raises(DataError, match=rf"user number {user} leaves no item .* \(1 such rows\)"):
                    sampler.draw(users, 1, rng, moment)


@pytest.mark.parametrize("rounds", [0, 50])
def test_draws_are_uniform_over_what_can_be_had(rounds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By repeated draws and, for rows that stay short, by listing their items."""
    monkeypatch.setattr(availability, "_MOST_ROUNDS", rounds)
    start = np.repeat(np.arange(10), 10)
    end = start + np.tile(np.arange(10), 10)
    sampler = AvailabilitySampler(np.array([1], np.int32), np.array([40], np.int32), AvailableItems(start, end, np.arange(19)))
    users, times = np.tile(np.array([0, 1], np.int32), 2000), np.full(4000, 4)
    drawn = sampler.draw(users, 5, np.random.default_rng(1), times)
    for user, n_left in ((0, 40), (1, 39)):
        counts = np.bincount(drawn[users == user].ravel(), minlength=100)
        assert (counts > 0).sum() == n_left
        assert (counts > 0)[40] == (user == 0)
        assert np.abs(counts[counts > 0] / 10_000 - 1 / n_left).max() < 0.008
    again = sampler.draw(users, 5, np.random.default_rng(1), times)
    np.testing.assert_array_equal(drawn, again)


@pytest.mark.parametrize("lifetime", [20, 2_000, 10**9])
def test_lists_stay_within_four_entries_an_item_and_most_draws_are_good(lifetime: int) -> None:
    n = 20_000
    start = np.arange(n)
    available = AvailableItems(start, start + lifetime, start)
    assert len(available.entries(np.arange(0))) == 0
    first, stop = available.slices(start)
    assert available._block_starts[-1] <= 4 * n
    assert available.count(start).sum() / (stop - first).sum() > 0.7


def market(n: int = 3_000, unsold: int = 500) -> Dataset:
    """Each item is listed some time before its sale; some are never sold, some are bought again and again."""
    rng = np.random.default_rng(5)
    times = np.sort(rng.integers(100, 10_000, n))
    items = np.where(rng.random(n) < 0.03, rng.integers(0, 5, n) + 100_000, np.arange(n))
    sales = pl.DataFrame({"u": rng.integers(0, 100, n), "i": items, "t": times})
    sold = sales.group_by("i").agg(pl.col("t").min()).sort("i")
    listings = pl.concat(
        [
            sold.select("i", since=pl.col("t") - rng.integers(1, 400, len(sold))),
            pl.DataFrame({"i": np.arange(unsold) + 200_000, "since": rng.integers(0, 10_000, unsold)}),
        ]
    )
    schema = {
        "interactions": {"user": "u", "item": "i", "time": "t"},
        "items": {"id": "i", "listed": "since", "sells_once": True},
    }
    return Dataset.from_tables(sales, items=listings, schema=schema)


def test_training_rows_meet_what_could_be_had_then() -> None:
    data, options = market(), BatchOptions(n_negatives=20)
    split = make_split(data, "global-time")
    rows, negatives = training_negatives(data, split.train, split.name, options)
    np.testing.assert_array_equal(rows, split.train)
    drawn = negatives.of_epoch(0)
    times = data.availability
    assert times is not None
    assert times.is_available(drawn, times.row_times[rows][:, None]).all()
    visible = set(zip(data.user_numbers[rows].tolist(), data.item_numbers[rows].tolist(), strict=True))
    assert visible.isdisjoint(zip(np.repeat(data.user_numbers[rows], 20).tolist(), drawn.ravel().tolist(), strict=True))
    never_sold = ~np.isin(drawn, data.seen_items)
    assert 0.1 < never_sold.mean() < 0.9
    assert np.isin(drawn, data.item_numbers[np.concatenate([split.validation, split.test])]).any()  # listed, sold later
    places = np.array([5, 7, 7])
    some = negatives.draw(places, np.random.default_rng(0))
    assert times.is_available(some, times.row_times[rows[places]][:, None]).all()
    np.testing.assert_array_equal(drawn, negatives.of_epoch(0))
    assert not np.array_equal(drawn, negatives.of_epoch(1))


def test_under_another_split_all_items_that_occur_are_drawn() -> None:
    data, options = market(), BatchOptions(n_negatives=20)
    split = make_split(data, "leave-one-out")
    rows, negatives = training_negatives(data, split.train, split.name, options)
    assert isinstance(negatives.sampler, NegativeSampler)
    np.testing.assert_array_equal(rows, split.train)
    assert np.isin(negatives.of_epoch(0), data.seen_items).all()


def test_rows_without_anything_else_to_be_had_are_left_out_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    sales = pl.DataFrame({"u": ["a", "a", "b", "b", "c"], "i": ["v", "w", "x", "y", "z"], "t": [10, 20, 30, 40, 50]})
    listings = pl.DataFrame({"i": ["v", "w", "x", "y", "z"], "since": [5, 5, 25, 28, 41]})
    schema = {
        "interactions": {"user": "u", "item": "i", "time": "t"},
        "items": {"id": "i", "listed": "since", "sells_once": True},
    }
    data = Dataset.from_tables(sales, items=listings, schema=schema)
    with caplog.at_level(logging.WARNING, "gmlfm"):
        # v: only w, the same user's; w: v is sold; x: y, the same user's; y and z: nothing else is listed.
        with pytest.raises(DataError, match=r"user 'a' leaves no item to draw a negative from.*\(5 such rows\)"):
            training_negatives(data, np.arange(5), "global-time", BatchOptions())
        rows, _ = training_negatives(data, np.array([0, 1, 2, 4]), "global-time", BatchOptions())
    assert rows.tolist() == [2]
    assert "3 training rows are left out: nothing else could be had at their time." in caplog.text
