"""What is searched for each model and task."""

from __future__ import annotations

import math

import pytest

from gmlfm.models.registry import MODELS
from gmlfm.models.settings import Choice, Real
from gmlfm.training.settings import Settings
from gmlfm.tuning.spaces import Point, as_point, defaults, n_points, search_space, untried_point


@pytest.mark.parametrize("name", MODELS)
def test_every_point_of_every_space_is_a_valid_setting(name: str) -> None:
    for task in MODELS[name].tasks:
        spaces = search_space(name, task)
        for setting, space in spaces.items():
            for value in space.values if isinstance(space, Choice) else (space.low, space.high):
                Settings.make(name, task, {setting: value})
        chosen = defaults(name, task, spaces)
        assert set(chosen) <= set(spaces)
        if MODELS[name].cls.learns_in_epochs and not MODELS[name].cls.inputs.labels:
            assert len(chosen) == len(spaces), "the first trial is the model's own defaults, whole"


def test_a_space_is_that_of_the_task_and_leaves_what_belongs_to_the_name() -> None:
    assert "n_negatives" in search_space("fm", "topn")
    assert "n_negatives" not in search_space("fm", "rating")
    assert "loss" not in search_space("fm", "rating")
    assert search_space("fm", "implicit")["loss"] == Choice(("squared", "logistic"))
    assert "loss" not in search_space("bpr-mf", "topn")
    assert set(search_space("ease", "topn")) == {"l2", "half_life"}
    assert search_space("popularity", "topn") == {}


def test_borders() -> None:
    assert Choice((1, 2, 4)).is_at_border(4)
    assert not Choice((0.0, 0.1, 0.2)).is_at_border(0.0)
    assert not Choice(("a", "b")).is_at_border("a")
    assert Real(1e-4, 1.0).is_at_border(1.1e-4)
    assert not Real(1e-4, 1.0).is_at_border(1e-2)


def test_the_papers_grid() -> None:
    space = search_space("gml-fm-dnn", "topn", "paper")
    assert space["lr"] == Choice((0.0001, 0.001, 0.01, 0.1))
    assert set(space) == {"lr", "dropout", "layers", "k"}
    assert set(search_space("gml-fm-md", "topn", "paper")) >= {"lr", "k"}
    assert search_space("ease", "topn", "paper") == search_space("ease", "topn")  # none of the paper's


def test_the_points_of_a_space() -> None:
    space = {"k": Choice((8, 16)), "loss": Choice(("bpr", "softmax", "squared"))}
    assert (n_points(space), n_points({}), n_points({**space, "lr": Real(0.1, 1.0)})) == (6, 1, math.inf)
    tried: set[Point] = set()
    for number in range(6):
        point = untried_point(space, tried, (0, number))
        assert point is not None
        assert all(choices.contains(point[name]) for name, choices in space.items())
        tried.add(as_point(point))
    assert len(tried) == 6
    assert untried_point(space, tried, (0, 6)) is None
    assert untried_point({**space, "lr": Real(0.1, 1.0)}, set(), (0, 0)) is None
