"""Instances of the task implicit."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from gmlfm import Dataset
from gmlfm.errors import DataError
from gmlfm.training.sampling.instances import implicit_instances
from tests.data.arbitrary import plain


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
    with pytest.raises(DataError, match="user 'u1'"):
        implicit_instances(plain([1, 1, 2], [1, 2, 1]))
