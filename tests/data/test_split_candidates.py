from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from gmlfm.data.split_candidates import candidate_lists, candidates_note
from gmlfm.data.split_reading import read_candidates
from gmlfm.errors import DataError
from tests.data.arbitrary import plain

# Items i1 to i5 are the numbers 0 to 4; the pair (u1, i2) has the rows 1 and 5.
DATA = plain([1, 1, 2, 2, 3, 1], [1, 2, 3, 4, 5, 2])
NONE = np.empty(0, np.int64)


def lists(rows: list[tuple[str, str, str]], tested: list[int], left_out: np.ndarray = NONE) -> np.ndarray:
    frame = pl.DataFrame(rows, schema=["user", "item", "candidate"], orient="row")
    return candidate_lists(read_candidates(frame, "test", DATA), DATA, "test", np.array(tested, np.int64), left_out)


def test_lists_stand_beside_their_rows_in_the_order_of_the_table() -> None:
    rows = [("u2", "i3", "i5"), ("u1", "i2", "i4"), ("u2", "i3", "i1"), ("u1", "i2", "i3"), ("u1", "i2", "i1")]
    found = lists(rows, [1, 2, 5])
    assert found.dtype == np.int32
    assert found.tolist() == [[3, 2, 0], [4, 0, -1], [3, 2, 0]]


def test_lists_of_rows_that_the_task_leaves_out_are_passed_over() -> None:
    rows = [("u1", "i2", "i4"), ("u2", "i3", "i5")]
    pair = np.array([1 * len(DATA.items) + 2])  # (u2, i3)
    assert lists(rows, [1], pair).tolist() == [[3]]
    assert lists(rows[1:], [], pair).shape == (0, 0)
    with pytest.raises(
        DataError, match="row 2: the list of user 'u2' and item 'i3' is of no test row; give lists for the test"
    ):
        lists(rows, [1])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [("u1", "i2", "i2")],
            "row 1: the list of user 'u1' and item 'i2' holds that item itself, 'i2'; a list holds the others",
        ),
        ([("u1", "i2", "i4"), ("u1", "i2", "i4")], "row 2: the list of user 'u1' and item 'i2' holds the candidate 'i4' again"),
        ([("u1", "i2", "i9")], "row 1: the candidate 'i9' is not in the data"),
        (
            [("u1", "i2", "i4")],
            "no list for 2 of 3 test rows, such as user 'u2' and item 'i3'; every test row needs candidates",
        ),
    ],
)
def test_a_wrong_list_is_one_sentence(rows: list[tuple[str, str, str]], message: str) -> None:
    with pytest.raises(DataError, match=message):
        lists(rows, [1, 2, 3])


def test_the_same_candidate_may_stand_in_two_lists() -> None:
    assert lists([("u1", "i2", "i5"), ("u2", "i3", "i5")], [1, 2]).tolist() == [[4], [4]]


def test_the_note_tells_the_lengths_and_the_candidates_that_were_trained_on() -> None:
    rows, train = np.array([1, 2]), np.array([0, 3, 4])
    same = candidates_note(np.array([[4], [0]], np.int32), DATA, "test", rows, train)
    assert same == "test rows are ranked among the lists that were brought, of 1 candidates each."
    mixed = candidates_note(np.array([[0, 4], [3, -1]], np.int32), DATA, "test", rows, train)
    assert mixed.endswith("of 1 to 2 candidates each; 2 of these candidates are training pairs of their user.")
