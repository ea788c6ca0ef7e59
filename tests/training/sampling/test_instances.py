"""Instances of the task implicit: no pair in two parts, and nothing to be read off what was sold in training."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gmlfm import Dataset
from gmlfm.errors import DataError
from gmlfm.training.sampling.instances import (
    Instances,
    implicit_instances,
    redraw_instances,
    sold_in_training_rmse,
)
from tests.data.arbitrary import plain


def pairs_of(instances: Instances, rows: np.ndarray) -> list[tuple[int, int]]:
    return list(zip(instances.users[rows].tolist(), instances.items[rows].tolist(), strict=True))


def shop(n: int = 400, n_items: int = 60, repeated: bool = True) -> Dataset:
    pairs = np.random.default_rng(3).choice(20 * n_items, n, replace=repeated)
    device = [f"d{number}" for number in range(n)]
    table = pl.DataFrame({"u": pairs // n_items, "i": pairs % n_items, "device": device})
    schema = {
        "interactions": {"user": "u", "item": "i", "repeats": "keep", "context": {"device": "category"}},
    }
    return Dataset.from_tables(table, schema=schema)


def single_sales(n: int = 3_000, n_stocked: int = 5) -> Dataset:
    """Each item is sold once, but for some that are bought again and again."""
    rng = np.random.default_rng(4)
    items = np.where(rng.random(n) < 0.05, 100_000 + rng.integers(n_stocked, size=n), np.arange(n))
    return Dataset.from_tables(
        pl.DataFrame({"u": rng.integers(150, size=n), "i": items}), schema={"interactions": {"user": "u", "item": "i"}}
    )


def test_instances_of_the_implicit_task() -> None:
    data = shop(200, repeated=False)
    instances = implicit_instances(data)
    n = data.n_interactions
    assert len(instances.labels) == 3 * n
    assert (instances.labels == 1).sum() == n
    positives = set(zip(data.user_numbers.tolist(), data.item_numbers.tolist(), strict=True))
    for user, item, label in zip(instances.users.tolist(), instances.items.tolist(), instances.labels.tolist(), strict=True):
        assert ((user, item) in positives) == (label == 1)
    assert np.array_equal(data.user_numbers[instances.rows], instances.users)
    negatives_per_row = np.bincount(instances.rows[instances.labels < 0], minlength=n)
    assert (negatives_per_row == 2).all()
    sizes = [len(instances.split.train), len(instances.split.validation), len(instances.split.test)]
    assert sizes == [3 * n - round(0.6 * n) - round(0.3 * n), round(0.6 * n), round(0.3 * n)]
    assert implicit_instances(data).split.hash == instances.split.hash
    assert implicit_instances(data, seed=1).split.hash != instances.split.hash
    assert instances.split.options["negatives_drawn"] == "distinct"


@pytest.mark.parametrize("data", [shop(), shop(n_items=15), shop(repeated=False), single_sales()])
def test_no_pair_stands_in_two_parts_and_no_negative_twice(data: Dataset) -> None:
    instances = implicit_instances(data)
    split = instances.split
    parts = [set(pairs_of(instances, rows)) for rows in (split.train, split.validation, split.test)]
    assert all(parts)
    assert sum(map(len, parts)) == len(set.union(*parts))
    negatives = pairs_of(instances, np.flatnonzero(instances.labels < 0))
    assert len(negatives) == len(set(negatives))
    assert len(split.train) + len(split.validation) + len(split.test) == len(instances.labels)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 7)), min_size=1, max_size=25), st.integers(1, 4))
def test_each_user_has_so_many_negatives_a_positive_or_all_that_are_left(rows: list[tuple[int, int]], n: int) -> None:
    data = plain(*map(list, zip(*rows, strict=True)))
    owned = {user: set(data.item_numbers[data.user_numbers == user].tolist()) for user in data.seen_users.tolist()}
    n_rows = np.bincount(data.user_numbers)
    expected = {user: min(n * int(n_rows[user]), len(data.seen_items) - len(items)) for user, items in owned.items()}
    if data.sells_once:
        return
    if not any(expected.values()):
        with pytest.raises(DataError, match=r"every user of dataset .* has all items"):
            implicit_instances(data, n)
        return
    instances = implicit_instances(data, n)
    for user, items in owned.items():
        drawn = instances.items[(instances.users == user) & (instances.labels < 0)].tolist()
        assert len(drawn) == len(set(drawn)) == expected[user]
        assert items.isdisjoint(drawn)


def test_negatives_are_uniform_over_what_a_user_leaves() -> None:
    """Of a user with many free items and of one with few, whose items are shuffled instead of drawn again."""
    for n_free, n_positives in ((40, 3), (10, 3)):
        others = list(range(n_positives, n_positives + n_free))
        data = plain([0] * n_positives + [1] * n_free + [2] * n_free, [*range(n_positives), *others, *others])
        user, positives = data.user_numbers[0], data.item_numbers[:n_positives]
        counts = np.zeros(n_positives + n_free)
        for seed in range(400):
            instances = implicit_instances(data, seed=seed)
            counts[instances.items[(instances.users == user) & (instances.labels < 0)]] += 1
        share = np.delete(counts, positives) / (400 * 2 * n_positives / n_free)
        assert (counts[positives] == 0).all()
        assert np.abs(share - 1).max() < 0.6
        assert np.abs(share - 1).mean() < 0.15


def test_rows_of_a_repeated_pair_are_in_one_part() -> None:
    data = shop(n_items=10)
    instances = implicit_instances(data)
    part = np.zeros(len(instances.labels), int)
    part[instances.split.validation], part[instances.split.test] = 1, 2
    positives = np.flatnonzero(instances.labels > 0)
    assert len(positives) == data.n_interactions
    parts_of_pair: dict[tuple[int, int], set[int]] = {}
    for pair, place in zip(pairs_of(instances, positives), part[positives].tolist(), strict=True):
        parts_of_pair.setdefault(pair, set()).add(place)
    assert len(parts_of_pair) < len(positives)
    assert all(len(parts) == 1 for parts in parts_of_pair.values())


def test_where_items_sell_once_a_sale_in_training_says_nothing() -> None:
    data = single_sales()
    assert data.sells_once
    instances = implicit_instances(data)
    assert instances.split.options["negatives_drawn"] == "distinct by part"
    informed, constant = sold_in_training_rmse(instances)
    assert informed > constant - 0.01
    trained = set(instances.items[instances.split.train].tolist())
    for rows in (instances.split.validation, instances.split.test):
        shared = trained & set(instances.items[rows].tolist())
        assert not data.single_unit_items[sorted(shared)].any()
    assert (instances.labels < 0).sum() == 2 * data.n_interactions
    assert instances.split.notes == ()


def test_as_published_negatives_are_drawn_first_and_the_sale_in_training_says_much() -> None:
    data = single_sales()
    instances = implicit_instances(data, as_published=True)
    informed, constant = sold_in_training_rmse(instances)
    assert constant == pytest.approx((8 / 9) ** 0.5, abs=0.02)  # a third of the labels is +1
    assert 0.68 < informed < 0.77  # .707 where every item sells once
    (note,) = instances.split.notes
    assert (
        f"'it was sold in training, so no' alone has RMSE {informed:.3f} on the test part (a constant: {constant:.3f})" in note
    )
    split = instances.split
    train, test = (set(pairs_of(instances, rows[instances.labels[rows] < 0])) for rows in (split.train, split.test))
    assert train & test
    assert implicit_instances(shop(), as_published=True).split.notes == ()
    with pytest.raises(DataError, match="user 'u1'"):
        implicit_instances(plain([1, 1, 2], [1, 2, 1]), as_published=True)


@pytest.mark.parametrize("as_published", [True, False])
def test_a_saved_split_draws_its_instances_again(as_published: bool) -> None:
    data = shop()
    instances = implicit_instances(data, 3, 7, as_published=as_published)
    again = redraw_instances(data, instances.split)
    np.testing.assert_array_equal(again.items, instances.items)
    assert again.split.hash == instances.split.hash
    other = replace(instances.split, options={**instances.split.options, "instances": "0" * 16})
    with pytest.raises(DataError, match="cannot be drawn again as they were; train again"):
        redraw_instances(data, other)
