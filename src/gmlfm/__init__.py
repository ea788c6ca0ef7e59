"""Recommendation from attributes, with factorization machines that learn their own metric."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gmlfm.data.dataset import Dataset
from gmlfm.data.encoding import Encoder
from gmlfm.data.schema import Schema
from gmlfm.data.sources import load_dataset
from gmlfm.data.splits import Split, make_split

if TYPE_CHECKING:
    from gmlfm.recommender import Recommender

__version__ = "0.1.0"
__all__ = ["Dataset", "Encoder", "Recommender", "Schema", "Split", "load_dataset", "make_split"]


def __getattr__(name: str) -> Any:
    """What needs PyTorch is loaded when it is first asked for: importing gmlfm stays quick."""
    if name == "Recommender":
        from gmlfm.recommender import Recommender

        return Recommender
    raise AttributeError(f"module 'gmlfm' has no attribute '{name}'")
