from __future__ import annotations

import numpy as np
import pytest

from gmlfm import Recommender
from gmlfm.errors import DataError
from gmlfm.recommender.user_side import newcomer


def test_scores_are_those_of_the_recommendation(habit_run: Recommender) -> None:
    history = habit_run.fitted.encoder.item_ids.head(2).to_list()
    best = habit_run.recommend_for(history=history, n=3)
    scores = habit_run.predict_for(history=history, items=best["item"].to_list()[::-1])
    assert scores["item"].to_list() == best["item"].to_list()[::-1]
    assert scores["score"].to_list() == pytest.approx(best["score"].to_list()[::-1], abs=1e-5)


def test_reasons_sum_to_the_score_and_name_the_history(habit_run: Recommender) -> None:
    history = habit_run.fitted.encoder.item_ids.head(2).to_list()
    best = habit_run.recommend_for(history=history, n=1)
    explanation = habit_run.explain_for(history=history, item=best["item"][0])
    assert explanation.score == pytest.approx(best["score"][0], abs=1e-4)
    assert set(explanation.by_event()) == set(history)


def test_unknown_items_are_refused_and_of_the_history_told_of(habit_run: Recommender) -> None:
    item = habit_run.fitted.encoder.item_ids[0]
    with pytest.raises(DataError, match="'nothing' is not in the catalogue"):
        habit_run.predict_for(items=[item, "nothing"])
    with pytest.warns(UserWarning, match="the item 'nothing' of the history is unknown"):
        habit_run.explain_for(history=["nothing"], item=item)


def test_items_of_the_history_are_left_out_unless_asked_for_or_the_data_keep_repeats(
    trained: Recommender, habit_run: Recommender
) -> None:
    history = ["i1", "i4"]
    assert habit_run.fitted.data.schema.interactions.repeats == "keep"
    assert set(history) <= set(habit_run.recommend_for(history=history, n=12)["item"])
    assert set(history).isdisjoint(trained.recommend_for(history=history, n=38)["item"])
    with_seen = trained.recommend_for(history=history, n=40, seen=True)
    assert set(history) <= set(with_seen["item"])
    scores = trained.predict_for(history=history, items=with_seen["item"].to_list())
    np.testing.assert_allclose(with_seen["score"], scores["score"], rtol=1e-5)


def test_an_item_that_comes_twice_in_a_history_counts_twice(habit_run: Recommender) -> None:
    """As a user of the data does who had it twice: the latest is the last, and all are in the past."""
    items = [f"i{n}" for n in range(12)]
    scores = {
        name: habit_run.predict_for(history=history, items=items)["score"].to_numpy()
        for name, history in {"once": ["i1", "i4"], "twice": ["i4", "i1", "i4"], "turned": ["i4", "i1"]}.items()
    }
    assert all((scores["twice"] != other).any() for name, other in scores.items() if name != "twice")
    habit = habit_run.fitted
    numbers = habit.encoder.item_numbers(["i4", "i1", "i4"]).astype(np.int32)
    side = newcomer(habit, {}, numbers, None)
    assert side.history is not None
    assert side.history.of_user(0).tolist() == numbers.tolist()
    expected = habit.model.score_all(side, habit.encoder.item_numbers(items).astype(np.int32))[0]
    np.testing.assert_allclose(scores["twice"], expected, rtol=1e-6)
    table = habit_run.recommend_for(history=["i4", "i1", "i4"], n=12)
    assert table["item"].n_unique() == 12
