"""The Recommender: fit, evaluate, recommend, explain, save, load. It wires; the maths is elsewhere."""

from __future__ import annotations

from gmlfm.recommender.core import Recommender

__all__ = ["Recommender"]
