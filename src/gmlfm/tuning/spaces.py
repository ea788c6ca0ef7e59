"""What is searched for a model and task: its own space, declared beside it, and what training and batches offer to all."""

from __future__ import annotations

import inspect
from typing import Any

from gmlfm.errors import OptionError
from gmlfm.models.registry import model_info
from gmlfm.models.spaces import Choice, Real, Space
from gmlfm.training.settings import Settings

_TRAINING: dict[str, Space] = {
    "lr": Real(1e-4, 3e-2),
    "weight_decay": Choice((0.0, 0.001, 0.01, 0.1, 0.5)),
    "cold_start_rate": Choice((0.0, 0.05, 0.1)),
    "batch_size": Choice(("auto", 256, 1024, 16384)),
}
_RANKING: dict[str, Space] = {
    "loss": Choice(("squared", "logistic", "bpr", "softmax")),
    "n_negatives": Choice((1, 2, 4, 8, 16)),
}
# A method that is named after its objective keeps it.
_FIXED_LOSS = ("bpr-mf", "pmf")
_PAPER: dict[str, Space] = {
    "lr": Choice((0.0001, 0.001, 0.01, 0.1)),
    "dropout": Choice(tuple(round(0.1 * step, 1) for step in range(10))),
    "layers": Choice((0, 1, 2, 3)),
    "k": Choice((4, 8, 16, 32, 64, 128, 256, 512)),
}


def search_space(model: str, task: str, preset: str | None = None) -> dict[str, Space]:
    """preset 'paper': the grid that the paper names, for the settings that the model has."""
    info = model_info(model)
    if preset == "paper":
        if info.make is None:
            raise OptionError(f"the preset 'paper' trains by gradients, which '{model}' does not.")
        return {name: one for name, one in _PAPER.items() if name == "lr" or name in info.option_names()}
    if info.count is not None:
        return dict(info.space)
    if info.episodic is not None:
        return {"lr": Real(0.005, 0.2), **info.space}
    shared = dict(_TRAINING)
    if task == "topn":
        shared |= {name: one for name, one in _RANKING.items() if name != "loss" or model not in _FIXED_LOSS}
    elif task == "implicit":
        shared["loss"] = Choice(("squared", "logistic"))
    return {**shared, **info.space}


def defaults(model: str, task: str, space: dict[str, Space]) -> dict[str, Any]:
    """The model's own defaults, as far as the space can say them: the first trial, so that tuning never loses to them."""
    signature = inspect.signature(model_info(model).factory).parameters
    own = {name: one.default for name, one in signature.items()}
    known = {**own, **Settings.make(model, task, {}).to_dict()["settings"]}
    found = {name: "auto" if known.get(name) is None else known[name] for name in space if name in known}
    return {name: value for name, value in found.items() if _says(space[name], value)}


def _says(space: Space, value: Any) -> bool:
    return space.low <= value <= space.high if isinstance(space, Real) else value in space.values
