"""Every model by name. Adding one is a file, a line here, and an equation in its docstring."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gmlfm.errors import OptionError, did_you_mean
from gmlfm.models.base import Model
from gmlfm.models.gmlfm import GMLFM


@dataclass(frozen=True)
class ModelInfo:
    """`make` builds a gradient model from options; None marks one that is counted instead of trained."""

    about: str
    equation: str
    tasks: tuple[str, ...]
    uses_attributes: bool
    make: Callable[..., Model] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def option_names(self) -> list[str]:
        return list(inspect.signature(self.make).parameters) if self.make else []


_ALL_TASKS = ("topn", "rating", "implicit")

MODELS: dict[str, ModelInfo] = {
    "gml-fm": ModelInfo(
        "our recommended form: one tanh layer from an orthogonal start, z at unit length, so that it starts near a plain FM",
        "models/gmlfm.py",
        _ALL_TASKS,
        True,
        GMLFM,
        {"transform": "dnn", "unit": True, "start": "orthogonal", "h_start": "half"},
    ),
    "gml-fm-dnn": ModelInfo(
        "the paper's DNN distance, exactly as printed", "models/gmlfm.py", _ALL_TASKS, True, GMLFM, {"transform": "dnn"}
    ),
    "gml-fm-md": ModelInfo(
        "the paper's Mahalanobis distance, exactly as printed",
        "models/gmlfm.py",
        _ALL_TASKS,
        True,
        GMLFM,
        {"transform": "mahalanobis"},
    ),
    "popularity": ModelInfo("how often an item was chosen in training", "models/simple.py", ("topn",), False),
}


def model_info(name: str) -> ModelInfo:
    if name not in MODELS:
        raise OptionError(f"model is '{name}'{did_you_mean(name, MODELS)}")
    return MODELS[name]
