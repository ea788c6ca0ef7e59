"""Every model by name. Adding one is a file, a line here, and an equation in its docstring."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gmlfm.errors import OptionError, did_you_mean
from gmlfm.models.base import Counted, Model
from gmlfm.models.gmlfm import GMLFM
from gmlfm.models.simple import Popularity


@dataclass(frozen=True)
class ModelInfo:
    """`make` builds a gradient model, `count` one that is fitted at once; one of the two is there.

    options: its settings where they differ from the defaults, of the model, the training or the batches.
    """

    about: str
    equation: str
    tasks: tuple[str, ...]
    uses_attributes: bool
    make: Callable[..., Model] | None = None
    count: Callable[..., Counted] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def factory(self) -> Callable[..., Any]:
        found = self.make or self.count
        assert found is not None
        return found

    @property
    def needs_layout(self) -> bool:
        return "layout" in inspect.signature(self.factory).parameters

    def option_names(self) -> list[str]:
        return [name for name in inspect.signature(self.factory).parameters if name != "layout"]


_ALL_TASKS = ("topn", "rating", "implicit")

MODELS: dict[str, ModelInfo] = {
    "gml-fm": ModelInfo(
        "our recommended form: one tanh layer from an orthogonal start, z at unit length, so that it starts near a plain FM",
        "models/gmlfm.py",
        _ALL_TASKS,
        True,
        GMLFM,
        options={"transform": "dnn", "unit": True, "start": "orthogonal", "h_start": "half"},
    ),
    "gml-fm-dnn": ModelInfo(
        "the paper's DNN distance, exactly as printed", "models/gmlfm.py", _ALL_TASKS, True, GMLFM, options={"transform": "dnn"}
    ),
    "gml-fm-md": ModelInfo(
        "the paper's Mahalanobis distance, exactly as printed",
        "models/gmlfm.py",
        _ALL_TASKS,
        True,
        GMLFM,
        options={"transform": "mahalanobis"},
    ),
    "popularity": ModelInfo("how often an item was chosen in training", "models/simple.py", ("topn",), False, count=Popularity),
}


def model_info(name: str) -> ModelInfo:
    if name not in MODELS:
        raise OptionError(f"model is '{name}'{did_you_mean(name, MODELS)}")
    return MODELS[name]
