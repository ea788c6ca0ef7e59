from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gmlfm.data.split_parts import SplitView, check_shares, places_of_user
from gmlfm.errors import DataError, OptionError
from tests.data.arbitrary import plain


@given(st.lists(st.integers(0, 4), max_size=20))
def test_places_are_counted_from_the_first_and_from_the_last_row_of_a_user(users: list[int]) -> None:
    from_first, from_last = places_of_user(np.array(users, np.int32))
    assert from_first.tolist() == [users[:row].count(user) for row, user in enumerate(users)]
    assert from_last.tolist() == [users[row + 1 :].count(user) for row, user in enumerate(users)]


def test_shares_must_leave_something_to_train_on() -> None:
    check_shares(validation=0.0, test=0.99)
    with pytest.raises(OptionError, match="test is 1; expected a share of at least 0 and below 1"):
        check_shares(test=1)
    with pytest.raises(OptionError, match=r"validation \+ test is 1; their sum must stay below 1"):
        check_shares(validation=0.5, test=0.5)


def test_a_view_gives_the_times_of_its_rows_or_says_what_is_missing() -> None:
    def view(times: list[int] | None) -> SplitView:
        data = plain([1, 1, 1], [1, 2, 3], times)
        rows = np.array([2, 0])
        return SplitView(data, rows, data.user_numbers[rows], data.item_numbers[rows], np.random.default_rng(0))

    assert view([7, 8, 9]).times("global-time").tolist() == [9, 7]
    with pytest.raises(DataError, match="the split 'global-time' needs times, but dataset 'tables' declares none"):
        view(None).times("global-time")
    with pytest.raises(DataError, match="needs a time in every row; 1 rows have none"):
        view([7, None, 9]).times("cold-start")  # type: ignore[list-item]
