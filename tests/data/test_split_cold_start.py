from __future__ import annotations

import numpy as np
import pytest

from gmlfm import make_split
from gmlfm.data.splits import COLD_GROUPS
from gmlfm.errors import DataError, OptionError
from tests.data.arbitrary import plain, random_plain


def test_cold_start_has_the_four_groups() -> None:
    rng = np.random.default_rng(1)
    users = np.repeat(np.arange(60), 25)
    # User k starts at k * 10: the last users' first rows are later than 80 % of all rows.
    times = np.repeat(np.arange(60) * 10, 25) + np.tile(np.arange(25), 60)
    items = np.minimum(rng.geometric(0.05, size=len(users)), 80)
    data = plain(users.tolist(), items.tolist(), times.tolist())
    split = make_split(data, "cold-start")
    assert split.group_names == COLD_GROUPS
    moment = np.sort(times)[round(0.8 * len(times)) - 1]
    cold_users = {user for user in range(60) if times[users == user].min() > moment}
    selected = np.tile(np.arange(25), 60) < 20
    popular = {item for item in range(81) if (items[selected] == item).sum() > 10}
    assert split.test_groups is not None
    for row, group in zip(split.test, split.test_groups, strict=True):
        assert (group >= 2) == (users[row] in cold_users)
        assert (group % 2 == 1) == (items[row] not in popular)
    assert f"{60 - len(cold_users)} warm and {len(cold_users)} cold users" in split.notes[0]
    tested = set(users[split.test])
    place = np.tile(np.arange(25), 60)
    assert all(15 <= place[row] < 20 for row in split.test)
    assert {place[row] for row in split.train if users[row] in tested} == set(range(15))
    fewer = make_split(data, "cold-start", interactions=3)
    assert {place[row] for row in fewer.train if users[row] in tested} == {0, 1, 2}
    assert fewer.test.tolist() == split.test.tolist()


def test_cold_starts_shares_and_moment_are_each_checked() -> None:
    data = random_plain(30, 30, 900)
    assert len(make_split(data, "cold-start", test_share=0.5, ratings=10, adapt=5).test) > 0
    with pytest.raises(OptionError, match=r"warm_time is 1\.2"):
        make_split(data, "cold-start", warm_time=1.2)
    with pytest.raises(OptionError, match="0 < adapt < ratings"):
        make_split(data, "cold-start", adapt=30)
    with pytest.raises(DataError, match="users with 20 rows or more; there are none"):
        make_split(plain([1], [1], [1]), "cold-start")
