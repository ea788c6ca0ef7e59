from __future__ import annotations

import pytest

from gmlfm import Recommender
from gmlfm.errors import DataError


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
