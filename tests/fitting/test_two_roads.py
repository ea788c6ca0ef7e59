"""Memory and prepared folders are two roads to one result, on every split, shape of catalogue and kind of model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from gmlfm import Dataset, Schema, load_dataset
from gmlfm.data.prepared import PreparedData
from gmlfm.data.restoring import restore
from gmlfm.data.sources.preparing import prepare
from gmlfm.data.splits import Split, make_split
from gmlfm.evaluation.protocols import evaluate_held_out
from gmlfm.fitting.fit import _fit, fit, make_plan
from gmlfm.fitting.memory import MemoryPlan
from gmlfm.fitting.plan import Stage
from gmlfm.fitting.run import FittedRun, Refit
from gmlfm.training.settings import Settings
from gmlfm.training.trainer import NullObserver
from tests.fitting.catalogues import SHAPES, write_catalogue

SPLITS = ("leave-one-out", "random", "global-time", "none")
CASES = [(shape, split) for shape in SHAPES for split in SPLITS if (shape, split) != ("no-time", "global-time")]
SEVERAL = 160  # rows of a bucket, so that a folder has several shards
Roads = tuple[Dataset, PreparedData, Split]


@pytest.fixture(scope="module")
def roads(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Roads]:
    """The data in memory, the same prepared, and the prepared folder's split."""
    made: dict[tuple[str, str, int, int], Roads] = {}

    def make(shape: str, split: str, rows_per_bucket: int = 10**6, n_users: int = 60) -> Roads:
        key = (shape, split, rows_per_bucket, n_users)
        if key not in made:
            folder = write_catalogue(tmp_path_factory.mktemp("roads") / "data", shape, n_users)
            schema = Schema.from_toml(folder / "dataset.toml")
            prepared = prepare(schema, folder, folder / "p", split=split, rows_per_bucket=rows_per_bucket)
            made[key] = load_dataset(folder), prepared, restore(prepared)[1]
        return made[key]

    return make


def fit_in_memory(data: Dataset, split: Split, settings: Settings, refit: Refit) -> FittedRun:
    """On a split that was made elsewhere: a random one has other rows in a prepared folder."""
    plan = make_plan(data, settings, split.name)
    assert isinstance(plan, MemoryPlan)
    plan.split = split
    return _fit(plan, refit, Stage(plan, None, False, NullObserver()))


@pytest.mark.parametrize(("shape", "split"), CASES)
def test_one_shard_trains_exactly_as_memory_does(roads: Callable[..., Roads], shape: str, split: str) -> None:
    """With one shard the numbers, the order and the draws are the same: so are all weights, of the selection and of the refit."""
    data, prepared, of_folder = roads(shape, split)
    assert prepared.n_shards == 1
    if split != "random":
        expected = make_split(data, split)
        for part in ("train", "validation", "test"):
            np.testing.assert_array_equal(getattr(of_folder, part), getattr(expected, part))
    # A second epoch only where nothing is chosen on validation, whose candidates are drawn by another seed.
    settings = Settings.make("fm", "topn", {"k": 4, "epochs": 2 if split == "none" else 1, "threads": 1, "history": "none"})
    memory = fit_in_memory(data, of_folder, settings, Refit.VALIDATION)
    shards = fit(prepared, settings, refit=Refit.VALIDATION)
    assert [entry["loss"] for entry in memory.curve] == [entry["loss"] for entry in shards.curve]
    assert memory.encoder.hash == shards.encoder.hash
    same_weights(memory, shards)


@pytest.mark.parametrize("shape", ["unsold", "sold-once-listed", "context"])
@pytest.mark.parametrize("refit", [Refit.NONE, Refit.ALL])
@pytest.mark.parametrize("model", ["mf", "gml-fm"])
def test_so_do_other_models_and_refits(roads: Callable[..., Roads], shape: str, refit: Refit, model: str) -> None:
    data, prepared, of_folder = roads(shape, "global-time")
    settings = Settings.make(model, "topn", {"k": 4, "epochs": 1, "threads": 1})
    same_weights(fit_in_memory(data, of_folder, settings, refit), fit(prepared, settings, refit=refit))


HISTORY = {"k": 4, "threads": 1, "history": "last,recent,past", "half_life": 2.0, "batch_size": 100}
TIMED = [(shape, split) for shape, split in CASES if shape != "no-time"]


@pytest.mark.parametrize(("shape", "split"), TIMED)
def test_so_it_does_with_a_history(roads: Callable[..., Roads], shape: str, split: str) -> None:
    """Targets, what stands before them, what is masked, negatives, hidden ids and levels: one of them other, and weights are."""
    data, prepared, of_folder = roads(shape, split)
    settings = Settings.make("fm", "topn", {**HISTORY, "epochs": 2 if split == "none" else 1})
    assert restore(prepared)[0].history_rows.equals(data.history_rows)
    memory = fit_in_memory(data, of_folder, settings, Refit.VALIDATION)
    shards = fit(prepared, settings, refit=Refit.VALIDATION)
    assert (memory.settings, memory.encoder.hash) == (shards.settings, shards.encoder.hash)
    assert [entry["loss"] for entry in memory.curve] == [entry["loss"] for entry in shards.curve]
    same_weights(memory, shards)
    assert not list((prepared.folder / "cache").glob("*parts*"))


@pytest.mark.parametrize(
    ("shape", "split", "model", "given", "refit"),
    [
        ("unsold", "leave-one-out", "mf", {}, Refit.NONE),
        ("events", "leave-one-out", "mf", {"user_id": True}, Refit.VALIDATION),
        ("context", "global-time", "gml-fm", {}, Refit.NONE),
        ("events", "leave-one-out", "gml-fm", {"history": "recent"}, Refit.VALIDATION),
        ("context", "leave-one-out", "nfm", {"history": "last"}, Refit.VALIDATION),
        ("sold-once-listed", "leave-one-out", "fm", {"n_negatives": 5}, Refit.ALL),
        ("rated", "global-time", "fm", {"loss": "bpr", "n_negatives": 3}, Refit.ALL),
        ("context", "random", "fm", {"user_id": True, "n_negatives": "all", "cold_start_rate": 0.3}, Refit.NONE),
        ("unsold", "leave-one-out", "fm", {"n_negatives": 20, "weight_decay": 0.1}, Refit.NONE),
    ],
)
def test_so_do_other_models_and_choices_with_a_history(
    roads: Callable[..., Roads], shape: str, split: str, model: str, given: dict[str, Any], refit: Refit
) -> None:
    data, prepared, of_folder = roads(shape, split)
    settings = Settings.make(model, "topn", {**HISTORY, "epochs": 1, **given})
    same_weights(fit_in_memory(data, of_folder, settings, refit), fit(prepared, settings, refit=refit))


@pytest.mark.parametrize(
    ("shape", "split"), [("unsold", "leave-one-out"), ("events", "global-time"), ("sold-once-listed", "random")]
)
def test_so_do_models_of_sequences(roads: Callable[..., Roads], shape: str, split: str) -> None:
    data, prepared, of_folder = roads(shape, split)
    settings = Settings.make("sasrec", "topn", {"k": 4, "epochs": 1, "threads": 1, "length": 6})
    same_weights(fit_in_memory(data, of_folder, settings, Refit.VALIDATION), fit(prepared, settings, refit=Refit.VALIDATION))


@pytest.mark.parametrize("history", ["none", "last,past"])
def test_ratings_are_learned_alike(roads: Callable[..., Roads], history: str) -> None:
    """Where no part is held out; folders hold out positives, ratings in memory any row."""
    data, prepared, of_folder = roads("rated", "none")
    settings = Settings.make("fm", "rating", {"k": 4, "epochs": 2, "threads": 1, "history": history})
    of_folder = restore(prepared, "rating")[1]
    same_weights(fit_in_memory(data, of_folder, settings, Refit.NONE), fit(prepared, settings))


def same_weights(memory: FittedRun, shards: FittedRun) -> None:
    left, right = memory.model.state_dict(), shards.model.state_dict()
    assert left.keys() == right.keys()
    for name in left:
        assert torch.equal(left[name], right[name]), name


@pytest.mark.parametrize(("shape", "split"), CASES)
def test_closed_form_models_are_the_same_from_several_shards(roads: Callable[..., Roads], shape: str, split: str) -> None:
    data, prepared, of_folder = roads(shape, split, SEVERAL)
    assert prepared.n_shards > 2
    for model, refit in (("popularity", Refit.NONE), ("item-knn", Refit.VALIDATION)):
        settings = Settings.make(model, "topn", {})
        shards = fit(prepared, settings, refit=refit)
        if split in ("leave-one-out", "global-time"):
            memory = fit(data, settings, split=split, refit=refit)
        else:  # other rows at random; and where no part is held out there is nothing but the scores to compare
            memory = fit_in_memory(shards.data, of_folder, settings, refit)
        assert len(memory.split.test) == len(shards.split.test)
        if split == "none":
            users, items = np.arange(5, dtype=np.int32), np.arange(60, dtype=np.int32)
            np.testing.assert_array_equal(memory.ranker.score_all(users, items), shards.ranker.score_all(users, items))
        else:
            # Users have other numbers in a folder, so sums are rounded otherwise and a near tie may turn.
            assert ranking(memory) == pytest.approx(ranking(shards), abs=1e-4)


def ranking(run: FittedRun) -> dict[str, float]:
    """Means over the tested rows; what is said of whole lists depends on the order of ties, which is that of numbers."""
    queries = evaluate_held_out(run.ranker, run.data, run.split, "test").queries
    return {name: float(values.mean()) for name, values in queries.items()}


def ndcg_of_test(run: FittedRun) -> float:
    """Over a long list: less coarse than a hit among the first ten."""
    return evaluate_held_out(run.ranker, run.data, run.split, "test", cutoffs=(50,)).metrics["ndcg@50"]


def gap_of_means(
    roads: Callable[..., Roads], case: tuple[str, str, str], refit: Refit, seeds: int, n_users: int
) -> tuple[float, float]:
    """The difference of the roads' means over seeds, and its standard error. 'fm+' is fm with a history."""
    shape, split, model = case
    given: dict[str, Any] = {"history": "last,recent,past", "batch_size": 64} if model == "fm+" else {"history": "none"}
    model = model.removesuffix("+")
    _, prepared, of_folder = roads(shape, split, SEVERAL, n_users)
    assert prepared.n_shards > 2
    figures: list[list[float]] = [[], []]
    for seed in range(seeds):
        settings = Settings.make(model, "topn", {"k": 8, "epochs": 20, "lr": 0.03, "threads": 1, "seed": seed, **given})
        shards = fit(prepared, settings, refit=refit)
        memory = fit_in_memory(shards.data, of_folder, settings, refit)
        for road, run in zip(figures, (memory, shards), strict=True):
            road.append(ndcg_of_test(run))
    means, spreads = [np.mean(road) for road in figures], [np.var(road, ddof=1) for road in figures]
    return float(means[0] - means[1]), float(np.sqrt(sum(spreads) / seeds))


CHOSEN = [
    (("unsold", "leave-one-out", "mf"), Refit.NONE),
    (("sold-once-listed", "global-time", "fm"), Refit.VALIDATION),
    (("context", "random", "fm"), Refit.VALIDATION),
    (("events", "leave-one-out", "fm+"), Refit.VALIDATION),
    (("sold-once-listed", "global-time", "fm+"), Refit.NONE),
]
WHOLE = [
    ((shape, split, model), refit)
    for shape, split in CASES
    for model in ("fm", "mf", "fm+")
    for refit in (Refit.NONE, Refit.VALIDATION)
    if split != "none" and not (model == "fm+" and shape == "no-time")
]


def name_of(case: object) -> str:
    return "-".join(case) if isinstance(case, tuple) else str(case)


@pytest.mark.parametrize(("case", "refit"), CHOSEN, ids=name_of)
def test_several_shards_are_as_good_as_memory(roads: Callable[..., Roads], case: tuple[str, str, str], refit: Refit) -> None:
    """Means over seeds: shards are shuffled each for itself, so that runs differ as seeds do.

    With negatives from the whole catalogue the first case lacks .17.
    """
    gap, error = gap_of_means(roads, case, refit, seeds=3, n_users=100)
    assert abs(gap) < max(4 * error, 0.05)


@pytest.mark.slow
@pytest.mark.parametrize(("case", "refit"), WHOLE, ids=name_of)
def test_several_shards_are_as_good_as_memory_in_every_case(
    roads: Callable[..., Roads], case: tuple[str, str, str], refit: Refit
) -> None:
    gap, error = gap_of_means(roads, case, refit, seeds=4, n_users=100)
    assert abs(gap) < max(5 * error, 0.05)
