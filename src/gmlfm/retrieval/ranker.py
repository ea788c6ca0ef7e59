"""What evaluating and recommending ask of a model of any kind."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from gmlfm.data.attributes import AttributeTable
from gmlfm.data.dataset import Rows

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]


class Scores(Protocol):
    """What evaluating needs of a model of any kind: scores of users by number."""

    def score_pairs(self, users: Ints, items: Ints, rows: Rows | None = None) -> Floats:
        """users (N,), items (N, G) -> (N, G). rows: the interactions whose context applies."""

    def score_all(self, users: Ints, items: Ints, rows: Rows | None = None) -> Floats:
        """(N, len(items)): every user against each of the items."""


class Ranker(Scores, Protocol):
    """And what recommending needs beside: scores for somebody by attributes."""

    def score_pairs_for(self, user_side: AttributeTable, items: Ints, users: Ints | None = None) -> Floats:
        """user side (N, F), items (N, G) -> (N, G)."""

    def score_all_for(
        self, user_side: AttributeTable, items: Ints, users: Ints | None = None, history: Ints | None = None
    ) -> Floats:
        """The same for users given by their attributes, seen or not. users: their numbers where known, -1 where not;
        history: the items of a newcomer."""


class Renumbered:
    """Scores of a counted model for other data: its users and items by the numbers the model knows, -1 for the unknown."""

    def __init__(self, scores: Scores, users: Ints, items: Ints) -> None:
        self._scores, self._users, self._items = scores, users, items

    def score_pairs(self, users: Ints, items: Ints, rows: Rows | None = None) -> Floats:
        known = self._items[items]
        return np.where(known >= 0, self._scores.score_pairs(self._users[users], np.maximum(known, 0)), 0.0).astype(np.float32)

    def score_all(self, users: Ints, items: Ints, rows: Rows | None = None) -> Floats:
        known = self._items[items]
        found = self._scores.score_all(self._users[users], np.maximum(known, 0))
        return np.where(known >= 0, found, 0.0).astype(np.float32)
