"""Recommendation from attributes, with factorization machines that learn their own metric."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from gmlfm.data.dataset import Dataset
from gmlfm.data.encoding import Encoder
from gmlfm.data.schema import Schema
from gmlfm.data.sources import load_dataset
from gmlfm.data.splits import Split, make_split

if TYPE_CHECKING:
    from gmlfm.client import Client
    from gmlfm.models.base import FitInputs, FitReport, Model, UserSide
    from gmlfm.models.closed_form import ClosedFormModel
    from gmlfm.models.episodic import EpisodicModel
    from gmlfm.models.gradient import Attributes, GradientModel
    from gmlfm.models.pairwise import PairwiseModel
    from gmlfm.models.registry import register
    from gmlfm.models.settings import Setting
    from gmlfm.recommender import Recommender
    from gmlfm.training.objectives import register_loss
    from gmlfm.training.rows import register_optimiser

__version__ = "0.1.0"
__all__ = [
    "Attributes",
    "Client",
    "ClosedFormModel",
    "Dataset",
    "Encoder",
    "EpisodicModel",
    "FitInputs",
    "FitReport",
    "GradientModel",
    "Model",
    "PairwiseModel",
    "Recommender",
    "Schema",
    "Setting",
    "Split",
    "UserSide",
    "load_dataset",
    "make_split",
    "register",
    "register_loss",
    "register_optimiser",
]

# What needs PyTorch, or is seldom needed, is loaded when it is first asked for: importing gmlfm stays quick.
_LAZY = {
    "Attributes": "gmlfm.models.gradient",
    "Client": "gmlfm.client",
    "ClosedFormModel": "gmlfm.models.closed_form",
    "EpisodicModel": "gmlfm.models.episodic",
    "FitInputs": "gmlfm.models.base",
    "FitReport": "gmlfm.models.base",
    "GradientModel": "gmlfm.models.gradient",
    "Model": "gmlfm.models.base",
    "PairwiseModel": "gmlfm.models.pairwise",
    "Recommender": "gmlfm.recommender",
    "Setting": "gmlfm.models.settings",
    "UserSide": "gmlfm.models.base",
    "register": "gmlfm.models.registry",
    "register_loss": "gmlfm.training.objectives",
    "register_optimiser": "gmlfm.training.rows",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'gmlfm' has no attribute '{name}'")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
