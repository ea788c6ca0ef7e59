"""From a model to recommendations: scores, exact top-n over the catalogue, reasons, neighbours."""

from __future__ import annotations

from gmlfm.retrieval.ranking import Cap, TopItems, best_items
from gmlfm.retrieval.scorer import Scorer
from gmlfm.retrieval.scores import Answers, Renumbered, Scores

__all__ = ["Answers", "Cap", "Renumbered", "Scorer", "Scores", "TopItems", "best_items"]
