from __future__ import annotations

import numpy as np
import pytest

from gmlfm import make_split
from gmlfm.errors import DataError
from gmlfm.evaluation.candidates import Pairs, evaluation_candidates
from tests.data.arbitrary import plain, random_plain


def test_candidates_are_distinct_and_none_of_the_users_positives() -> None:
    data = random_plain(30, 150, 900)
    split = make_split(data)
    drawn, candidates_hash = evaluation_candidates(data, split.test, n=60)
    positives = set(zip(data.user_numbers.tolist(), data.item_numbers.tolist(), strict=True))
    for row, items in zip(split.test, drawn, strict=True):
        assert len(set(items.tolist())) == 60
        assert all((int(data.user_numbers[row]), item) not in positives for item in items.tolist())
    assert evaluation_candidates(data, split.test, n=60)[1] == candidates_hash
    assert evaluation_candidates(data, split.test, n=60, seed=1)[1] != candidates_hash


def test_the_lists_stay_the_same_from_version_to_version() -> None:
    """Runs of different versions are compared by this hash."""
    data = random_plain(30, 150, 900)
    assert evaluation_candidates(data, make_split(data).test, n=60)[1] == "ff94229d2d360b2c"


def test_candidates_are_of_the_items_named_and_avoid_positives_from_elsewhere() -> None:
    data = plain([0, 0, 1], [0, 1, 2])
    more = Pairs(np.array([0], np.int32), data.item_numbers[2:])
    drawn, _ = evaluation_candidates(data, np.array([2]), n=2)
    assert sorted(drawn[0]) == sorted(data.item_numbers[:2])
    with pytest.raises(DataError, match=r"user 'u0' leaves 0 of 3 items, but 1 are to be sampled; .* use full"):
        evaluation_candidates(data, np.array([0]), n=1, more=more)
    with pytest.raises(DataError, match="user 'u1' leaves 1 of 1 items"):
        evaluation_candidates(data, np.array([2]), n=2, candidates=data.item_numbers[:1])
