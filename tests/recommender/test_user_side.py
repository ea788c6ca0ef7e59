from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gmlfm import Recommender
from gmlfm.errors import OptionError
from gmlfm.fitting.forgetting import without_user
from gmlfm.recommender.user_side import known_users, newcomer

VERBS: dict[str, Callable[[Recommender, Any], Any]] = {
    "recommend": lambda run, context: run.recommend(["u1"], 3, context=context, seen=True)["score"].to_list(),
    "recommend_for": lambda run, context: run.recommend_for({}, n=3, context=context)["score"].to_list(),
    "with a history": lambda run, context: run.recommend_for({}, ["i7"], 3, context=context)["score"].to_list(),
    "predict": lambda run, context: run.predict([("u1", "i0"), ("nobody", "i7")], context=context)["score"].to_list(),
    "explain": lambda run, context: run.explain("u1", "i0", context=context).score,
    "contrast": lambda run, context: run.contrast("u1", "i0", "i7", context=context),
    "contrast with the mean": lambda run, context: run.contrast("u1", "i0", context=context),
}


@pytest.mark.parametrize("verb", VERBS)
def test_the_context_of_the_occasion_changes_the_scores(verb: str, context_run: Recommender) -> None:
    answer = VERBS[verb]
    assert answer(context_run, {"channel": "web"}) != answer(context_run, {"channel": "app"})
    assert answer(context_run, {}) == answer(context_run, None) != answer(context_run, {"channel": "web"})
    with pytest.raises(OptionError, match="the data have no context field 'chanel'; did you mean 'channel'"):
        answer(context_run, {"chanel": "web"})


@pytest.mark.parametrize("verb", VERBS)
def test_a_context_is_refused_where_the_data_have_none(verb: str, trained: Recommender) -> None:
    with pytest.raises(OptionError, match=r"^the data have no context, but channel was given\.$"):
        VERBS[verb](trained, {"channel": "web"})


def test_an_explanation_in_a_context_is_the_predicted_score(context_run: Recommender) -> None:
    context = {"channel": "app"}
    explanation = context_run.explain("u1", "i0", context=context)
    assert explanation.score == pytest.approx(context_run.predict([("u1", "i0")], context=context)["score"][0], abs=1e-5)
    assert any("context.channel = app" in term.attributes for term in explanation.terms)


def test_unknown_users_have_the_unknown_row_and_nothing_else(trained: Recommender) -> None:
    run = trained.fitted
    side = known_users(run, np.array([3, -1]), None)
    assert side.numbers.tolist() == [3, -1]
    np.testing.assert_array_equal(side.attributes.ids[0], run.encoded.user.ids[3])
    is_present = side.attributes.values[1] != 0
    assert set(run.encoder.attribute_names(side.attributes.ids[1][is_present])["value"]) <= {"(unknown)", "(missing)"}


def test_users_can_be_asked_for_when_everybody_was_forgotten(context_run: Recommender) -> None:
    run = context_run.fitted
    for user in run.data.users.ids.to_list():
        run = without_user(run, user)
    with pytest.warns(UserWarning, match="'web' was never met in training"):  # it left with the last who had it
        side = known_users(run, np.array([-1, -1]), {"channel": "web"})
    assert len(side.attributes) == 2
    assert np.isfinite(run.model.score_all(side, np.arange(3, dtype=np.int32))).all()


def test_a_newcomers_attributes_are_those_of_the_data(trained: Recommender) -> None:
    run = trained.fitted
    user = newcomer(run, {"team": "red"}, np.array([1], np.int32), None)
    assert user.numbers.tolist() == [-1]
    assert user.history is not None
    assert "red" in run.encoder.attribute_names(user.attributes.ids[0])["value"].to_list()
    with pytest.raises(OptionError, match="no user field 'taem'; did you mean 'team'"):
        trained.recommend_for({"taem": "red"})
    with pytest.raises(OptionError, match=r"attributes is .*; expected names and values"):
        trained.recommend_for([("team", "red")])  # type: ignore[arg-type]


def test_a_value_of_the_context_that_training_never_met_is_told(context_run: Recommender) -> None:
    for ask in (
        lambda context: context_run.predict([("u1", "i0")], context=context),
        lambda context: context_run.recommend(["u1"], 2, context=context),
        lambda context: context_run.explain("u1", "i0", context=context),
        lambda context: context_run.recommend_for({}, n=2, context=context),
    ):
        with pytest.warns(UserWarning, match=r"context.channel = 'fax' was never met in training; it counts as unknown"):
            ask({"channel": "fax"})
        ask({"channel": "app"})  # warnings are errors here
        ask({})
