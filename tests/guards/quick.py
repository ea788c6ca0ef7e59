"""Every model of the registry at small settings."""

from __future__ import annotations

from typing import Any

from gmlfm import Recommender
from gmlfm.models.registry import MODELS
from gmlfm.training.settings import settings_table

QUICK: dict[str, Any] = {"k": 4, "epochs": 3, "threads": 1, "inner": 1}
RANKING = [name for name, info in MODELS.items() if "topn" in info.tasks]
CLOSED_FORM = [name for name in RANKING if not MODELS[name].cls.learns_in_epochs]
TRAINED = [name for name in RANKING if name not in CLOSED_FORM]


def quick(name: str, task: str = "topn", **more: Any) -> Recommender:
    """With those of the settings that the model has."""
    names = {row["name"] for row in settings_table(name, task)}
    return Recommender(name, task, **{key: value for key, value in {**QUICK, **more}.items() if key in names})
