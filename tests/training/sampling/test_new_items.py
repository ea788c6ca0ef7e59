"""How often what is chosen is new, by users' last rows or the latest tenth of the training rows."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from gmlfm import Dataset, make_split
from gmlfm.fitting.memory import MemoryPlan
from gmlfm.training.sampling.availability import training_negatives
from gmlfm.training.sampling.batches import BatchOptions
from gmlfm.training.sampling.new_items import NewItems, latest_cut
from gmlfm.training.settings import Settings
from tests.training.sampling.test_availability import market


def test_items_without_a_row_before_the_latest_tenth_are_new_in_it() -> None:
    items = np.array([0] * 10 + [1] * 8 + [2, 3], np.int32)  # the latest two of twenty rows
    times = np.arange(20)
    assert latest_cut(times) == 17
    assert NewItems.estimate(items, times, 6) == NewItems(of_choices=1.0, of_candidates=0.5)
    items[19] = 0
    assert NewItems.estimate(items, times, 6) == NewItems(of_choices=0.5, of_candidates=pytest.approx(1 / 3))
    items[18] = 1
    estimate = NewItems.estimate(items, times, 6)
    assert estimate == NewItems(0.0, 0.0)
    assert not estimate.is_informative


def test_the_order_of_rows_does_not_matter_and_one_time_stays_together() -> None:
    rng = np.random.default_rng(0)
    times = np.repeat(np.arange(50), 4)
    items = (times + rng.integers(0, 10, 200)).astype(np.int32)
    shuffled = rng.permutation(200)
    estimate = NewItems.estimate(items, times, 60)
    assert NewItems.estimate(items[shuffled], times[shuffled], 60) == estimate
    is_latest = times > latest_cut(times)
    assert is_latest.sum() == 20
    is_new = is_latest & ~np.isin(items, items[~is_latest])
    assert estimate.of_choices == pytest.approx(is_new.sum() / 20)
    assert estimate.of_candidates == pytest.approx(len(np.unique(items[is_new])) / len(np.unique(items)))


def test_the_same_from_counts_and_first_rows_which_shards_can_add_up() -> None:
    rng = np.random.default_rng(1)
    times, items = rng.integers(0, 1000, 500), rng.integers(0, 200, 500).astype(np.int32)
    first_times, cut = np.full(200, 10**9), latest_cut(times)
    for half in (slice(250), slice(250, None)):
        np.minimum.at(first_times, items[half], times[half])
    counts = np.bincount(items, minlength=200)
    assert NewItems.from_first_rows(first_times, counts, cut, int((times > cut).sum())) == NewItems.estimate(items, times, 200)


def test_where_things_can_be_had_for_a_time_candidates_are_those_of_that_time() -> None:
    data = market()
    split = make_split(data, "global-time")
    rows, negatives = training_negatives(data, split.train, split.name, BatchOptions(n_negatives=5))
    items, times = data.item_numbers[rows], data.places_in_time[rows]
    over_all = NewItems.estimate(items, times, len(data.items))
    now = over_all.among(items, times, negatives)
    assert now.of_choices == over_all.of_choices > 0.9  # each item is sold once
    assert over_all.of_candidates < 0.15
    assert now.of_candidates > 0.9  # and what is sold cannot be had


def test_of_leave_one_out_the_future_is_each_users_last_row() -> None:
    rng = np.random.default_rng(5)
    table = pl.DataFrame({"u": rng.integers(0, 90, 500), "i": rng.integers(0, 120, 500), "t": rng.integers(0, 60, 500)})
    data = Dataset.from_tables(table, schema={"interactions": {"user": "u", "item": "i", "time": "t"}})
    plan = MemoryPlan(data, Settings.make("fm", "topn", {"k": 2, "history": "none"}), "leave-one-out", {}, "cpu")
    new_items = plan.selection_inputs().batches().ids.new_items
    rows = plan.split.train
    users, items = data.user_numbers[rows].tolist(), data.item_numbers[rows].tolist()
    times = data.interactions["time"].to_numpy()[rows].tolist()
    last: dict[int, int] = {}
    for place in sorted(range(len(rows)), key=lambda place: (times[place], place)):
        last[users[place]] = place
    others = {items[place] for place in range(len(rows)) if place not in last.values()}
    new_choices = [items[place] for place in last.values() if items[place] not in others]
    assert len(new_choices) > 3
    assert new_items.of_choices == pytest.approx(len(new_choices) / len(last))
    assert new_items.of_candidates == pytest.approx(len(set(new_choices)) / len(set(items)))
