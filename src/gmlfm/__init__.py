"""Recommendation from attributes, with factorization machines that learn their own metric."""

from __future__ import annotations

from gmlfm.data.dataset import Dataset
from gmlfm.data.encoding import Encoder
from gmlfm.data.schema import Schema
from gmlfm.data.sources import load_dataset
from gmlfm.data.splits import Split, make_split

__version__ = "0.1.0"
__all__ = ["Dataset", "Encoder", "Schema", "Split", "load_dataset", "make_split"]
