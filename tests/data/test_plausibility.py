from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from gmlfm.data.plausibility import doubtful_field, doubtful_rating


def test_zeros_among_ratings_may_mean_no_rating() -> None:
    sentence = doubtful_rating(pl.Series("Book-Rating", ["0"] * 6 + ["8", "8", "10", "5"]))
    assert sentence == (
        "'Book-Rating' is 0 in 6 of 10 rows (60%) beside ratings of 5 to 10: where that means 'no rating', leave these rows out "
        'with where = "`Book-Rating` > 0" in [interactions].'
    )
    assert 'where = "stars > 0"' in str(doubtful_rating(pl.Series("stars", [0, 0, 0, 1, 2, 3])))
    assert 'where = "`in` > 0"' in str(doubtful_rating(pl.Series("in", [0, 0, 0, 1, 2, 3])))
    assert "is -1 in 1 of 6 rows" in str(doubtful_rating(pl.Series("rating", [-1, 7, 7, 7, 8, 9])))


@pytest.mark.parametrize(
    "values",
    [
        [1, 2, 3, 4, 5],
        [0, 1, 1, 0, 0],  # clicked or not
        [0, 5, 5, 4, 3],  # a rare 0 is the lowest mark
        [0.0, 0.0, 0.25, 0.5, 0.75, 1.0],  # a share
        [-1, -1, 0, 1, 2, 3],
        [-2, -2, 1, 2, 3],
        [None, None],
    ],
)
def test_other_ratings_are_not_doubted(values: list[Any]) -> None:
    assert doubtful_rating(pl.Series("rating", values, dtype=pl.Float64)) is None


@pytest.mark.parametrize(
    ("name", "side", "values", "sentence"),
    [
        (
            "Age",
            "users",
            ["0", "244", "30", "41", None],
            "'Age' has 2 of 4 values that cannot be ages, such as 0 and 244: write",
        ),
        (
            "userAge",
            "users",
            [-5, 30, 41],
            "'userAge' has 1 of 3 values that cannot be ages, such as -5: write them as missing",
        ),
        ("Year-Of-Publication", "items", [0, 2050, 1999, 2001, 1987], "2 of 5 values that cannot be years, such as 0 and 2050"),
        ("birth year", "users", ["1970", "19700", "x", "1980"], "1 of 3 values that cannot be years, such as 19700"),
    ],
)
def test_impossible_ages_and_years_are_named(name: str, side: str, values: list[Any], sentence: str) -> None:
    assert sentence in str(doubtful_field(pl.Series(name, values), side, this_year=2026))


@pytest.mark.parametrize(
    ("name", "side", "values"),
    [
        ("age", "users", [1, 18, 25, 56]),
        ("age", "users", ["18-24", "25-34"]),
        ("age", "items", [0, 0, 3, 12]),  # of toys
        ("year", "items", [1999, 2027, 2001]),
        ("years of use", "items", [0, 1, 12]),
        ("price", "items", [0, 1, 12]),
        ("year", "items", [["1999"], ["0"]]),
        ("age", "users", [None, None]),
    ],
)
def test_what_can_be_is_not_doubted(name: str, side: str, values: list[Any]) -> None:
    assert doubtful_field(pl.Series(name, values), side, this_year=2026) is None
