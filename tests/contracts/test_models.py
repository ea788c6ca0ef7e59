"""What every model of the registry must do. A new model is tested by its line in the registry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from gmlfm import Dataset, Recommender
from gmlfm.errors import DataError
from gmlfm.models.registry import MODELS
from tests.contracts.checkerboard import N_ITEMS, N_USERS, checkerboard

QUICK: dict[str, Any] = {"k": 8, "epochs": 2, "batch_size": 64, "lr": 0.02, "n_negatives": 2, "threads": 1}
TRAINED = [name for name, info in MODELS.items() if info.make is not None]


@pytest.fixture(scope="module")
def board() -> Dataset:
    return checkerboard()


EPISODIC = [name for name, info in MODELS.items() if info.episodic is not None]
EPISODES: dict[str, Any] = {"k": 8, "epochs": 2, "inner": 1, "threads": 1}


def quick(name: str, **more: Any) -> Recommender:
    """The model for the first task it does, small."""
    if name in EPISODIC:
        return Recommender(name, "rating", **{**EPISODES, **{key: one for key, one in more.items() if key == "seed"}})
    return Recommender(name, **({**QUICK, **more} if name in TRAINED else {}))


def same_colour_share(recommender: Recommender) -> float:
    """The chance that an unseen item of the own colour scores above one of the other colour."""
    data = recommender.fitted.data
    users, items = np.arange(N_USERS, dtype=np.int32), data.seen_items
    scores = recommender.fitted.scores.score_all(users, items)
    colour = np.array([int(one[1:]) % 2 for one in data.items.ids[items].to_list()])
    team = np.array([int(one[1:]) % 2 for one in data.users.ids[users].to_list()])
    met = {(int(user), int(item)) for user, item in zip(data.user_numbers, data.item_numbers, strict=True)}
    wins = []
    for user in users:
        fresh = np.array([(int(user), int(item)) not in met for item in items])
        own, other = scores[user, fresh & (colour == team[user])], scores[user, fresh & (colour != team[user])]
        wins.append((own[:, None] > other[None]).mean())
    return float(np.mean(wins))


@pytest.mark.parametrize("name", TRAINED)
def test_it_learns_the_checkerboard(name: str, board: Dataset) -> None:
    recommender = quick(name, epochs=40, patience=6).fit(board)
    assert same_colour_share(recommender) > 0.95


@pytest.mark.parametrize("name", [name for name in TRAINED if "rating" in MODELS[name].tasks])
@pytest.mark.parametrize("task", ["rating", "implicit"])
def test_it_predicts_labels(name: str, task: str, board: Dataset) -> None:
    recommender = quick(name, task=task, epochs=60, patience=60).fit(board, "random")
    metrics = recommender.evaluate().metrics
    truth = board.interactions["label"].to_numpy() if task == "rating" else np.array([1.0, -1.0, -1.0])
    assert metrics["rmse"] < 0.7 * truth.std()


@pytest.mark.parametrize("name", MODELS)
def test_the_same_seed_gives_the_same_scores(name: str, board: Dataset) -> None:
    users, items = np.arange(N_USERS, dtype=np.int32), board.seen_items
    one, two = (quick(name).fit(board).fitted.scores.score_all(users, items) for _ in range(2))
    assert np.array_equal(one, two)
    if name in TRAINED + EPISODIC:
        other = quick(name, seed=1).fit(board).fitted.scores.score_all(users, items)
        assert not np.array_equal(one, other)


@pytest.mark.parametrize("name", MODELS)
def test_saved_and_loaded_it_scores_the_same(name: str, board: Dataset, tmp_path: Path) -> None:
    recommender = quick(name).fit(board)
    recommender.save(tmp_path / "run")
    again = Recommender.load(tmp_path / "run")
    users, items = np.arange(N_USERS, dtype=np.int32), board.seen_items
    assert np.array_equal(again.fitted.scores.score_all(users, items), recommender.fitted.scores.score_all(users, items))
    assert again.recommend(["u3"], 4).equals(recommender.recommend(["u3"], 4))
    assert again.evaluate(protocol="full").metrics == recommender.evaluate(protocol="full").metrics
    assert not list((tmp_path / "run").rglob("*.pkl"))
    assert "hash" in (tmp_path / "run" / "model" / "card.md").read_text()


@pytest.mark.parametrize("name", MODELS)
def test_unknown_users_and_items_score(name: str, board: Dataset) -> None:
    recommender = quick(name).fit(board)
    table = recommender.recommend(["nobody", "u1"], 5, candidates="catalogue")
    assert table.filter(pl.col("user") == "nobody").height == 5
    assert table["known"].to_list() == [False] * 5 + [True] * 5
    assert table["score"].is_finite().all()
    never_bought = [f"i{N_ITEMS}", f"i{N_ITEMS + 1}"]
    found = recommender.predict([("u1", one) for one in never_bought])
    assert found["score"].is_finite().all()
    assert recommender.recommend_for({"team": "red"}, n=3).height == 3


@pytest.mark.parametrize("name", TRAINED)
def test_nan_raises(name: str, board: Dataset) -> None:
    recommender = quick(name).fit(board)
    recommender.fitted.scores._table.fill_(torch.nan)  # type: ignore[attr-defined]
    with pytest.raises(DataError, match="no numbers"):
        recommender.recommend(["u1"], 3)


@pytest.mark.parametrize("name", MODELS)
def test_pairs_and_the_whole_catalogue_agree(name: str, board: Dataset) -> None:
    scores = quick(name).fit(board).fitted.scores
    users, items = np.arange(6, dtype=np.int32), board.seen_items
    by_pairs = scores.score_pairs(users, np.tile(items, (6, 1)))
    np.testing.assert_allclose(scores.score_all(users, items), by_pairs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_one_row_batches_one_user_and_one_item(name: str) -> None:
    few = Dataset.from_tables(
        pl.DataFrame({"u": ["a", "a", "a", "a", "b"], "i": ["w", "x", "y", "z", "v"], "stars": [1, 2, 3, 4, 5]}),
        schema={"interactions": {"user": "u", "item": "i", "label": "stars"}},
    )
    recommender = quick(name, batch_size=1).fit(few)
    assert recommender.recommend(["a"], 1)["item"].to_list() == ["v"]
    if recommender.settings.task == "topn":
        assert recommender.evaluate(protocol="full").metrics["hr@10"] == 1.0  # two candidates
