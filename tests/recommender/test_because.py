from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from gmlfm import Dataset, Recommender
from gmlfm.errors import OptionError
from gmlfm.models import reasons
from tests.recommender.conftest import WITH_HISTORY


def slow_reason(recommender: Recommender, user: str, item: str) -> str | None:
    """The earlier item whose terms have the largest sum, by its title, which two items share, or its id."""
    explanation = recommender.explain(user, item)
    sums: dict[str, float] = {}
    for term in explanation.terms:
        if term.role is not None:
            sums[term.earlier] = sums.get(term.earlier, 0.0) + term.value
    best = max(sums, key=lambda earlier: sums[earlier])
    return explanation.titles.get(best, best) if sums[best] > 0 else None


@pytest.mark.parametrize("most", [reasons._NUMBERS_PER_BLOCK, 30])
@pytest.mark.parametrize("name", ["fm", "gml-fm", "transfm", "mf", "ease", "item-knn"])
def test_because_is_the_earlier_item_that_adds_most(
    name: str, most: int, habits: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reasons, "_NUMBERS_PER_BLOCK", most)  # of all users together, and of each by themselves
    settings = {} if name in ("ease", "item-knn") else {**WITH_HISTORY, "history": "last,recent,past"}
    recommender = Recommender(name, **settings).fit(habits)
    users = [f"u{user}" for user in range(20)]
    table = recommender.recommend(users, 12, seen=True, because=True)
    assert table.columns == ["user", "item", "score", "rank", "title", "because", "known"]
    assert_frame_equal(table.drop("because"), recommender.recommend(users, 12, seen=True), abs_tol=1e-5)
    expected = [slow_reason(recommender, row["user"], row["item"]) for row in table.to_dicts()]
    assert table["because"].to_list() == expected
    assert len(set(expected)) > 3


def test_where_no_earlier_item_speaks_for_an_item_there_is_no_reason(habits: Dataset) -> None:
    recommender = Recommender("fm", history="last", **WITH_HISTORY).fit(habits)
    table = recommender.recommend([f"u{user}" for user in range(20)], 12, seen=True, because=True)
    expected = [slow_reason(recommender, row["user"], row["item"]) for row in table.to_dicts()]
    assert table["because"].to_list() == expected
    assert 0 < expected.count(None) < len(expected)


def test_a_newcomers_reason_is_among_what_they_gave(habit_run: Recommender) -> None:
    table = habit_run.recommend_for({}, ["i5", "i2"], 12, because=True)
    assert table.columns == ["user", "item", "score", "rank", "title", "because"]
    assert {"i5", "Film 1"} <= set(table["because"]) <= {"i5", "Film 1", None}
    assert habit_run.recommend_for({}, n=3, because=True)["because"].null_count() == 3


def test_a_user_of_whom_nothing_is_known_has_no_reason(habit_run: Recommender) -> None:
    table = habit_run.recommend(["nobody", "u1"], 3, because=True)
    assert table.filter(pl.col("user") == "nobody")["because"].null_count() == 3


def test_without_titles_it_is_the_id_in_the_callers_type() -> None:
    rows = [(user, (user * 5 + 3 * step) % 11, step) for user in range(12) for step in range(5)]
    table = pl.DataFrame(rows, schema=["user", "item", "time"], orient="row")
    schema = {"interactions": {"user": "user", "item": "item", "time": "time"}}
    recommender = Recommender("item-knn").fit(Dataset.from_tables(table, schema=schema))
    ranked = recommender.recommend([1], 5, because=True)
    assert ranked["because"].dtype == pl.Int64
    bought = {item for user, item, _ in rows if user == 1}
    assert set(ranked["because"].drop_nulls()) <= bought
    assert ranked["because"].null_count() < 5


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("fm", {"history": "none"}, "because names .* this run of 'fm' does not read what users did before; leave because out"),
        ("popularity", {}, "this run of 'popularity' does not read what users did before"),
        ("nfm", {"history": "last"}, "that of 'nfm' is no sum over earlier items; leave because out, or take fm or gml-fm"),
    ],
)
def test_a_run_without_such_a_sum_says_so(name: str, settings: dict[str, Any], message: str, habits: Dataset) -> None:
    training = {} if name == "popularity" else {"k": 4, "epochs": 1, "threads": 1}
    recommender = Recommender(name, **training, **settings).fit(habits)
    for call in (lambda: recommender.recommend(["u1"], because=True), lambda: recommender.recommend_for({}, because=True)):
        with pytest.raises(OptionError, match=message):
            call()
