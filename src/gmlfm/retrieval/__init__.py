"""From a model to recommendations: scores, exact top-n over the catalogue, reasons, neighbours."""

from __future__ import annotations

from gmlfm.retrieval.ranker import Ranker, Renumbered, Scores
from gmlfm.retrieval.ranking import Cap, TopItems, best_items
from gmlfm.retrieval.scorer import Scorer

__all__ = ["Cap", "Ranker", "Renumbered", "Scorer", "Scores", "TopItems", "best_items"]
