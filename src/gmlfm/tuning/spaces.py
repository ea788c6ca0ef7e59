"""What is searched for a model and task: what its settings declare, or the grid that the paper names."""

from __future__ import annotations

from typing import Any

from gmlfm.errors import OptionError
from gmlfm.models.registry import ModelInfo, model_info
from gmlfm.models.settings import Choice, Space
from gmlfm.training.settings import Settings, applicable
from gmlfm.training.settings import search_space as declared_space

_PAPER: dict[str, Space] = {
    "lr": Choice((0.0001, 0.001, 0.01, 0.1)),
    "dropout": Choice(tuple(round(0.1 * step, 1) for step in range(10))),
    "layers": Choice((0, 1, 2, 3)),
    "k": Choice((4, 8, 16, 32, 64, 128, 256, 512)),
}


def search_space(model: str | ModelInfo, task: str, preset: str | None = None) -> dict[str, Space]:
    """preset 'paper': the grid that the paper names, for the settings that the model has."""
    info = model if isinstance(model, ModelInfo) else model_info(model)
    if preset == "paper":
        if not applicable(info)["batches"]:
            raise OptionError(f"the preset 'paper' trains by gradients, which '{info.name}' does not.")
        return {name: space for name, space in _PAPER.items() if name == "lr" or name in info.declared}
    return declared_space(info, task)


def defaults(model: str | ModelInfo, task: str, space: dict[str, Space]) -> dict[str, Any]:
    """The model's own defaults, as far as the space has them: the first trial, so that tuning never loses to them."""
    info = model if isinstance(model, ModelInfo) else model_info(model)
    declared = {name: setting.default for name, setting in info.declared.items() if setting.has_default}
    values = {**declared, **Settings.make(info, task, {}).to_dict()["settings"]}
    chosen = {name: "auto" if values[name] is None else values[name] for name in space if name in values}
    return {name: value for name, value in chosen.items() if space[name].contains(value)}
