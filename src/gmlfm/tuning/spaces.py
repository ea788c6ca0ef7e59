"""What is searched for a model and task: what its settings declare, or the grid that the paper names."""

from __future__ import annotations

import itertools
import math
from collections.abc import Container, Mapping
from typing import Any

import numpy as np

from gmlfm.data.attributes import ROLES
from gmlfm.models.registry import ModelInfo, model_info
from gmlfm.models.settings import Choice, Space
from gmlfm.training.settings import Settings
from gmlfm.training.settings import search_space as declared_space

_PAPER: dict[str, Space] = {
    "lr": Choice((0.0001, 0.001, 0.01, 0.1)),
    "dropout": Choice(tuple(round(0.1 * step, 1) for step in range(10))),
    "layers": Choice((0, 1, 2, 3)),
    "k": Choice((4, 8, 16, 32, 64, 128, 256, 512)),
}
_MOST_LISTED = 10_000  # a larger space hardly proposes a point twice
Point = tuple[tuple[str, Any], ...]


def search_space(
    model: str | ModelInfo, task: str, preset: str | None = None, *, with_history: bool = False
) -> dict[str, Space]:
    """preset 'paper': the grid that the paper names, for the settings that the model has. A model that is not trained in
    epochs is none of the paper's and keeps its own space. with_history: of a model that reads what users did before."""
    info = model if isinstance(model, ModelInfo) else model_info(model)
    if preset == "paper" and info.cls.learns_in_epochs:
        return {name: space for name, space in _PAPER.items() if name == "lr" or name in info.declared}
    return declared_space(info, task, with_history=with_history)


def defaults(model: str | ModelInfo, task: str, space: dict[str, Space], *, with_history: bool = False) -> dict[str, Any]:
    """The model's own defaults, as far as the space has them: the first trial, so that tuning never loses to them."""
    info = model if isinstance(model, ModelInfo) else model_info(model)
    history = {"history": ",".join(ROLES)} if with_history else {}
    declared = {name: setting.default for name, setting in info.declared.items() if setting.has_default}
    values = {**declared, **Settings.make(info, task, history).to_dict()["settings"]}
    chosen = {name: "auto" if values[name] is None else values[name] for name in space if name in values}
    return {name: value for name, value in chosen.items() if space[name].contains(value)}


def n_points(space: Mapping[str, Space]) -> float:
    """How many settings there are to try; 1 where nothing is searched, infinity with a range of numbers."""
    return math.prod(len(choices.values) if isinstance(choices, Choice) else math.inf for choices in space.values())


def as_point(chosen: Mapping[str, Any]) -> Point:
    return tuple(sorted(chosen.items()))


def untried_point(space: Mapping[str, Space], tried: Container[Point], seed: tuple[int, int]) -> dict[str, Any] | None:
    """A point of a listed space that was not tried, drawn by the seed; None where the space is too large to list."""
    if n_points(space) > _MOST_LISTED:
        return None
    values = [choices.values for choices in space.values() if isinstance(choices, Choice)]
    points = [dict(zip(space, combination, strict=True)) for combination in itertools.product(*values)]
    left = [point for point in points if as_point(point) not in tried]
    return left[int(np.random.default_rng(seed).integers(len(left)))] if left else None


def space_as_json(space: Mapping[str, Space]) -> dict[str, Any]:
    """For a study's stamp: what was searched."""
    return {
        name: list(choices.values)
        if isinstance(choices, Choice)
        else {"low": choices.low, "high": choices.high, "log": choices.log}
        for name, choices in space.items()
    }
