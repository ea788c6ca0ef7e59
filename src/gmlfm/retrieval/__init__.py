"""From a model to recommendations: scores by number, exact top-n over the catalogue, reasons."""

from __future__ import annotations

from gmlfm.retrieval.ranker import ModelRanker, Ranker
from gmlfm.retrieval.ranking import DEFAULT_N, Cap, TopItems, best_items

__all__ = ["DEFAULT_N", "Cap", "ModelRanker", "Ranker", "TopItems", "best_items"]
