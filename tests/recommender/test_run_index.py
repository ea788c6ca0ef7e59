from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from gmlfm import Dataset, Recommender
from gmlfm.recommender.run_index import RunIndex
from tests.recommender.conftest import QUICK


def test_positives_are_the_users_chosen_items(trained: Recommender, board: Dataset) -> None:
    index = RunIndex(trained.fitted)
    positive = board.interactions.filter(pl.col("positive"))
    for user in (0, 17, 39):
        assert sorted(index.positives(user)) == sorted(positive.filter(pl.col("user") == user)["item"])


def test_users_met_in_training(trained: Recommender) -> None:
    run = trained.fitted
    is_met = RunIndex(run).trained_users
    assert is_met[np.unique(run.data.user_numbers[run.split.train])].all()
    assert is_met.sum() == 40
    assert not is_met[-1]  # a user that is not known


@pytest.mark.parametrize(("refit", "rows_per_user"), [(False, 13), (True, 14), ("all", 15)])
def test_popularity_counts_the_rows_that_were_learned_from(refit: bool | str, rows_per_user: int, board: Dataset) -> None:
    run = Recommender("popularity").fit(board, refit=refit).fitted
    popularity = RunIndex(run).popularity
    counts = np.bincount(run.data.item_numbers[run.learned_rows], minlength=42)
    np.testing.assert_allclose(popularity, counts / 40)
    assert popularity.sum() == pytest.approx(rows_per_user, abs=1e-4)


def test_a_run_of_instances_knows_users_and_popularity_too(board: Dataset) -> None:
    run = Recommender("mf", "implicit", **{**QUICK, "epochs": 1}).fit(board).fitted
    index = RunIndex(run)
    assert run.instances is not None
    assert index.trained_users[:-1].sum() == len(np.unique(run.instances.users[run.learned_rows]))
    np.testing.assert_allclose(index.popularity.sum(), 15, atol=1e-4)  # all positives


def test_candidates_are_items_of_interactions_and_those_that_came_later(own_run: Recommender) -> None:
    assert RunIndex(own_run.fitted).candidates.tolist() == list(range(40))
    own_run.add_items(pl.DataFrame({"item": ["n"], "colour": ["red"], "price": [1.0], "tags": [["x"]]}))
    assert RunIndex(own_run.fitted).candidates.tolist() == [*range(40), 42]
