from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gmlfm import Recommender
from gmlfm.data.attributes import AttributeTable
from gmlfm.data.encoding import Encoded
from gmlfm.models.base import Floats, Ints, UserSide
from gmlfm.retrieval import ModelRanker, best_items
from tests.contracts.checkerboard import checkerboard


class Recorder:
    """A model that remembers whom it was asked for."""

    reads_history = False

    def __init__(self) -> None:
        self.users: list[UserSide] = []

    def score_all(self, users: UserSide, items: Ints) -> Floats:
        self.users.append(users)
        return (100 * users.numbers[:, None] + items[None]).astype(np.float32)

    def score_pairs(self, users: UserSide, items: Ints) -> Floats:
        self.users.append(users)
        return (100 * users.numbers[:, None] + items).astype(np.float32)


def table(ids: list[list[int]]) -> AttributeTable:
    return AttributeTable(np.array(ids, np.int32), np.full((len(ids), len(ids[0])), 0.5, np.float32))


@pytest.fixture
def ranker() -> ModelRanker:
    model: Any = Recorder()
    return ModelRanker(model, Encoded(table([[1], [2], [3]]), table([[50], [51], [52], [53]]), table([[10]])))


def last_users(ranker: ModelRanker) -> UserSide:
    model: Any = ranker.model
    users: UserSide = model.users[-1]
    return users


def test_users_are_scored_by_number_with_their_attributes(ranker: ModelRanker) -> None:
    users = np.array([2, 0], np.int32)
    assert ranker.score_all(users, np.array([5, 6], np.int32)).tolist() == [[205.0, 206.0], [5.0, 6.0]]
    assert last_users(ranker).numbers.tolist() == [2, 0]
    assert last_users(ranker).attributes.ids.tolist() == [[3], [1]]
    assert ranker.score_pairs(users, np.array([[7], [8]], np.int32)).tolist() == [[207.0], [8.0]]
    assert last_users(ranker).history is None


def test_the_context_of_the_interactions_comes_with_the_users(ranker: ModelRanker) -> None:
    users, rows = np.array([0, 1], np.int32), np.array([3, 1])
    ranker.score_all(users, np.array([0], np.int32), rows)
    assert last_users(ranker).attributes.ids.tolist() == [[1, 53], [2, 51]]
    ranker.score_pairs(users, np.array([[0], [0]], np.int32), rows)
    assert last_users(ranker).attributes.ids.tolist() == [[1, 53], [2, 51]]
    assert last_users(ranker).attributes.values.tolist() == [[0.5, 0.5]] * 2


def test_users_of_other_data_go_by_the_numbers_of_training(ranker: ModelRanker) -> None:
    other = ModelRanker(ranker.model, ranker._encoded, np.array([7, -1, 4], np.int32))
    other.score_all(np.array([0, 1, 2], np.int32), np.array([0], np.int32))
    assert last_users(other).numbers.tolist() == [7, -1, 4]
    assert last_users(other).attributes.ids.tolist() == [[1], [2], [3]]


def test_scores_are_written_where_they_are_asked_for() -> None:
    class Writing(Recorder):
        scores_in_threads = True

        def score_all(self, users: UserSide, items: Ints, out: Floats | None = None) -> Floats:
            scores = super().score_all(users, items)
            if out is None:
                return scores
            out[:] = scores
            return out

    model: Any = Writing()
    ranker = ModelRanker(model, Encoded(table([[1], [2], [3]]), table([[50], [51], [52], [53]]), table([[10]])))
    users, items, rows = np.array([2, 0], np.int32), np.array([5, 7], np.int32), np.array([3, 1])
    out = np.empty((2, 2), np.float32)
    assert ranker.scores_in_threads
    assert ranker.score_into(users, items, rows, out) is out
    np.testing.assert_array_equal(out, ranker.score_all(users, items, rows))


def test_the_best_of_many_users_are_the_best_of_each() -> None:
    run = Recommender("fm", k=4, epochs=1, threads=2).fit(checkerboard()).fitted
    items = np.arange(len(run.data.items), dtype=np.int32)
    users = np.tile(np.arange(len(run.data.users), dtype=np.int32), 1 + 1_100 // len(run.data.users))
    left_out = [items[user % 5 : user % 5 + 2] for user in users]
    together = run.ranker.top_items(users, items, 4, left_out)
    for place in range(0, len(users), 97):
        scores = run.ranker.score_all(users[place : place + 1], items)
        alone = best_items(scores, items, 4, left_out[place : place + 1])
        np.testing.assert_array_equal(together.items[place], alone.items[0])
        np.testing.assert_allclose(together.scores[place], alone.scores[0], rtol=1e-5, atol=1e-7)
