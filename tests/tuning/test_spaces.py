"""What is searched for each model and task."""

from __future__ import annotations

import pytest

from gmlfm.errors import OptionError
from gmlfm.models.registry import MODELS
from gmlfm.models.settings import Choice, Real
from gmlfm.training.settings import Settings
from gmlfm.tuning.spaces import defaults, search_space


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
    assert set(search_space("ease", "topn")) == {"l2"}
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
    with pytest.raises(OptionError, match="the preset 'paper' trains by gradients, which 'ease' does not"):
        search_space("ease", "topn", "paper")
