"""What evaluating and recommending ask for: scores of users and items by number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from gmlfm.data.dataset import Rows
from gmlfm.data.encoding import Encoded
from gmlfm.data.histories import Histories
from gmlfm.models.base import Floats, Ints, Model, UserSide
from gmlfm.retrieval.ranking import TopItems, best_items
from gmlfm.retrieval.threads import in_threads, scoring_threads

_USERS_PER_BLOCK = 512


class Ranker(Protocol):
    """Scores of users by number. rows: the interactions whose context applies."""

    def score_pairs(self, users: Ints, items: Ints, rows: Rows | None = None) -> Floats:
        """users (N,), items (N, G) -> (N, G)."""

    def score_all(self, users: Ints, items: Ints, rows: Rows | None = None) -> Floats:
        """(N, len(items)): every user against each of the items."""


class ModelRanker:
    """A model over the users of some data. training_numbers: by user, the number that the model knows them by, -1 for none;
    without it, its own. histories: what its users did before, for a model that reads that."""

    def __init__(
        self,
        model: Model,
        encoded: Encoded,
        training_numbers: Ints | None = None,
        histories: Histories | None = None,
    ) -> None:
        self.model, self._encoded, self._training_numbers = model, encoded, training_numbers
        self._histories = histories if model.reads_history else None

    @property
    def scores_in_threads(self) -> bool:
        """Whether several threads may call score_into at the same time."""
        return self.model.scores_in_threads

    def user_side(self, users: npt.NDArray[np.integer], rows: Rows | None = None) -> UserSide:
        numbers = np.asarray(users, np.int32) if self._training_numbers is None else self._training_numbers[users]
        history = None
        if self._histories is not None:
            history = self._histories.complete(users) if rows is None else self._histories.before(rows)
        return UserSide(numbers, self._encoded.user_side(users, rows), history)

    def score_pairs(self, users: Ints, items: Ints, rows: Rows | None = None) -> Floats:
        if len(users) <= _USERS_PER_BLOCK or not self.scores_in_threads:
            return self.model.score_pairs(self.user_side(users, rows), items)

        def scored(start: int) -> Floats:
            block = slice(start, start + _USERS_PER_BLOCK)
            return self.model.score_pairs(self.user_side(users[block], None if rows is None else rows[block]), items[block])

        return np.concatenate(list(in_threads(scored, range(0, len(users), _USERS_PER_BLOCK))))

    def score_all(self, users: Ints, items: Ints, rows: Rows | None = None) -> Floats:
        return self.model.score_all(self.user_side(users, rows), items)

    def top_items(self, users: Ints, items: Ints, n: int, left_out: Sequence[Ints]) -> TopItems:
        """The best items of each user without those of `left_out`, block after block of users."""

        def of_block(start: int) -> TopItems:
            block = slice(start, start + _USERS_PER_BLOCK)
            return best_items(self.score_all(users[block], items), items, n, left_out[block])

        n_threads = scoring_threads() if self.scores_in_threads else 1
        parts = list(in_threads(of_block, range(0, len(users), _USERS_PER_BLOCK), n_threads=n_threads))
        return TopItems(np.concatenate([part.items for part in parts]), np.concatenate([part.scores for part in parts]))

    def score_into(self, users: Ints, items: Ints, rows: Rows, out: Floats) -> Floats:
        """score_all, written to `out` (N, len(items)); for models that score in threads."""
        model: Any = self.model
        scores: Floats = model.score_all(self.user_side(users, rows), items, out=out)
        return scores
