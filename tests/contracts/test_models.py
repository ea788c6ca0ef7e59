"""What every model must do, ours and other people's. A new model of ours is tested by its line in the registry."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from safetensors.torch import load_file, save_file

from gmlfm import Dataset, Recommender
from gmlfm.errors import DataError, NotSupportedError, OptionError
from gmlfm.models.registry import MODELS, model_info
from gmlfm.runs import model_folder
from gmlfm.training.settings import settings_table
from tests.contracts.checkerboard import N_ITEMS, N_USERS, checkerboard
from tests.contracts.foreign import FOREIGN
from tests.runs.edited import reseal

INFOS = {**MODELS, **{name: model_info(cls) for name, cls in FOREIGN.items()}}
# By gradient steps over batches; those that learn from labels user by user are judged in tests/models/test_mamo.py.
TRAINED = [name for name, info in INFOS.items() if info.cls.learns_in_epochs and not info.cls.inputs.labels]
PREDICTING = [name for name in TRAINED if "rating" in INFOS[name].tasks]
# What goes by the user's history needs no epochs to learn from the board.
PERSONAL = [
    *TRAINED,
    "chosen-together",
    *(name for name, info in MODELS.items() if info.cls.inputs.history and name not in TRAINED),
]
QUICK: dict[str, Any] = {"k": 8, "epochs": 2, "batch_size": 64, "lr": 0.02, "n_negatives": 2, "threads": 1, "inner": 1}
USERS = np.arange(N_USERS, dtype=np.int32)
Fit = Callable[[str], Recommender]


@pytest.fixture(scope="module")
def board() -> Dataset:
    return checkerboard()


@pytest.fixture(scope="module")
def fitted(board: Dataset) -> Fit:
    """A quick Recommender of each model, fitted once. No test may change it."""
    return cache(lambda name: quick(name).fit(board))


@pytest.fixture(scope="module")
def saved(fitted: Fit, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The run folder of that Recommender. Read-only."""

    def save(name: str) -> Path:
        folder = tmp_path_factory.mktemp("runs") / "run"
        fitted(name).save(folder)
        return folder

    return cache(save)


def quick(name: str, task: str | None = None, **more: Any) -> Recommender:
    """Small, for the first task that the model does, with those of the settings that it has."""
    task = task or INFOS[name].tasks[0]
    names = {row["name"] for row in settings_table(name, task)}
    return Recommender(name, task, **{key: value for key, value in {**QUICK, **more}.items() if key in names})


def test_the_lists_are_of_what_models_say() -> None:
    assert {"gml-fm", "ngcf", "two-towers", "bilinear"} <= set(TRAINED)
    assert not {"mamo", "ease", "popularity", "chosen-together"} & set(TRAINED)
    assert {"ease", "item-knn", "chosen-together"} <= set(PERSONAL)
    assert not {"mamo", "popularity"} & set(PERSONAL)
    assert "bpr-mf" not in PREDICTING


def same_colour_share(recommender: Recommender) -> float:
    """The chance that an unseen item of the user's colour scores above one of the other colour."""
    data = recommender.fitted.data
    items = data.seen_items
    scores = recommender.fitted.ranker.score_all(USERS, items)
    colour = np.array([int(item[1:]) % 2 for item in data.items.ids[items].to_list()])
    team = np.array([int(user[1:]) % 2 for user in data.users.ids[USERS].to_list()])
    met = {(int(user), int(item)) for user, item in zip(data.user_numbers, data.item_numbers, strict=True)}
    wins = []
    for user in USERS:
        is_unseen = np.array([(int(user), int(item)) not in met for item in items])
        same, other = scores[user, is_unseen & (colour == team[user])], scores[user, is_unseen & (colour != team[user])]
        wins.append((same[:, None] > other[None]).mean())
    return float(np.mean(wins))


@pytest.mark.parametrize("name", PERSONAL)
def test_it_learns_the_checkerboard(name: str, board: Dataset) -> None:
    assert same_colour_share(quick(name, epochs=6).fit(board)) > 0.95


@pytest.mark.parametrize("name", PREDICTING)
@pytest.mark.parametrize("task", ["rating", "implicit"])
def test_it_predicts_labels(name: str, task: str, board: Dataset) -> None:
    recommender = quick(name, task, epochs=10, patience=10).fit(board, "random")
    metrics = recommender.evaluate().metrics
    truth = board.interactions["label"].to_numpy() if task == "rating" else np.array([1.0, -1.0, -1.0])
    # What a user has not chosen of their own colour is a negative, too: the colour alone leaves .65 of the spread.
    assert metrics["rmse"] < (0.7 if task == "rating" else 0.8) * truth.std()


@pytest.mark.parametrize("name", INFOS)
def test_the_same_seed_gives_the_same_scores(name: str, board: Dataset, fitted: Fit) -> None:
    scores, same = (
        recommender.fitted.ranker.score_all(USERS, board.seen_items) for recommender in (fitted(name), quick(name).fit(board))
    )
    assert np.array_equal(scores, same)
    if INFOS[name].cls.learns_in_epochs:
        other = quick(name, seed=1).fit(board).fitted.ranker.score_all(USERS, board.seen_items)
        assert not np.array_equal(scores, other)


@pytest.mark.parametrize("name", INFOS)
def test_saved_and_loaded_it_scores_the_same(name: str, board: Dataset, fitted: Fit, saved: Callable[[str], Path]) -> None:
    recommender, folder = fitted(name), saved(name)
    loaded = Recommender.load(folder)
    scores, loaded_scores = (run.fitted.ranker.score_all(USERS, board.seen_items) for run in (recommender, loaded))
    assert np.array_equal(loaded_scores, scores)
    assert loaded.recommend(["u3"], 4).equals(recommender.recommend(["u3"], 4))
    assert loaded.evaluate(protocol="full").metrics == recommender.evaluate(protocol="full").metrics
    assert not list(folder.rglob("*.pkl"))
    assert "hash" in (model_folder(folder) / "card.md").read_text()


@pytest.mark.parametrize("name", INFOS)
def test_unknown_users_and_items_score(name: str, fitted: Fit) -> None:
    recommender = fitted(name)
    table = recommender.recommend(["nobody", "u1"], 5, candidates="catalogue")
    assert table.filter(pl.col("user") == "nobody").height == 5
    assert table["known"].to_list() == [False] * 5 + [True] * 5
    assert table["score"].is_finite().all()
    never_bought = [f"i{N_ITEMS}", f"i{N_ITEMS + 1}"]
    predicted = recommender.predict([("u1", item) for item in never_bought])
    assert predicted["score"].is_finite().all()
    assert recommender.recommend_for({"team": "red"}, n=3).height == 3


@pytest.mark.parametrize("name", TRAINED)
def test_nan_raises(name: str, saved: Callable[[str], Path], tmp_path: Path) -> None:
    folder = shutil.copytree(saved(name), tmp_path / "run")
    weights = load_file(model_folder(folder) / "weights.safetensors")
    weights["table"].fill_(torch.nan)
    save_file(weights, model_folder(folder) / "weights.safetensors")
    reseal(folder)
    recommender = Recommender.load(folder)
    with pytest.raises(DataError, match="no numbers"):
        recommender.recommend(["u1"], 3)
    with pytest.raises(DataError, match="no numbers"):
        recommender.predict([("u1", "i1")])


@pytest.mark.parametrize("name", INFOS)
def test_pairs_and_the_whole_catalogue_agree(name: str, board: Dataset, fitted: Fit) -> None:
    ranker, items = fitted(name).fitted.ranker, board.seen_items
    by_pairs = ranker.score_pairs(USERS[:6], np.tile(items, (6, 1)))
    np.testing.assert_allclose(ranker.score_all(USERS[:6], items), by_pairs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", INFOS)
def test_an_explanation_adds_up_to_the_score_where_there_is_one(name: str, fitted: Fit) -> None:
    recommender = fitted(name)
    try:
        explanations = [recommender.explain("u1", item) for item in ("i2", "i3")]
    except NotSupportedError:
        assert not recommender.fitted.model.caches_items
        return
    scores = recommender.predict([("u1", "i2"), ("u1", "i3")])["score"].to_list()
    assert [explanation.score for explanation in explanations] == pytest.approx(scores, abs=1e-4)


def few(**time: str) -> Dataset:
    """time: the name of the column that says what came first."""
    table = pl.DataFrame({"u": ["a", "a", "a", "a", "b"], "i": ["w", "x", "y", "z", "v"], "stars": [1, 2, 3, 4, 5]})
    return Dataset.from_tables(table, schema={"interactions": {"user": "u", "item": "i", "label": "stars", **time}})


@pytest.mark.filterwarnings("ignore:every item that sells once is sold")
@pytest.mark.parametrize("name", INFOS)
def test_batches_of_a_row_a_single_user_and_a_single_item(name: str) -> None:
    data = few()
    if INFOS[name].cls.reads_sequences:
        with pytest.raises(OptionError, match="reads users' events in order, but the data have no times; name their column"):
            quick(name).fit(data)
        data = few(time="stars")
    recommender = quick(name, batch_size=1).fit(data, "leave-one-out")
    assert recommender.recommend(["a"], 1)["item"].to_list() == ["v"]
    if recommender.settings.task == "topn":
        assert recommender.evaluate(protocol="full").metrics["hr@10"] == 1.0  # two candidates


@pytest.mark.parametrize("name", INFOS)
def test_a_forgotten_user_is_unknown_and_the_others_keep_their_scores(
    name: str, saved: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = shutil.copytree(saved(name), tmp_path / "run")
    recommender = Recommender.load(folder)
    before = recommender.predict([("u2", "i1"), ("u3", "i2")])["score"].to_numpy()
    recommender.forget("u1")
    assert recommender.predict([("u1", "i1")])["known"].to_list() == [False]
    after = recommender.predict([("u2", "i1"), ("u3", "i2")])["score"].to_numpy()
    if INFOS[name].cls.learns_in_epochs and not INFOS[name].cls.inputs.graph:
        np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-6)
    assert np.isfinite(after).all()
    assert np.array_equal(Recommender.load(folder).predict([("u2", "i1"), ("u3", "i2")])["score"].to_numpy(), after)
