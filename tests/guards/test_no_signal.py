"""No signal, no score: on random data every model, split, protocol and refit is at chance. A figure above it is a leak."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from gmlfm.data.splits import make_split
from gmlfm.evaluation.candidates import Candidates
from gmlfm.evaluation.protocols import evaluate_held_out, evaluate_ranking
from gmlfm.models.registry import MODELS
from tests.guards.chance import ALPHA, Share, gain_on_constant, hit_rates, pooled
from tests.guards.quick import CLOSED_FORM, RANKING, TRAINED, quick
from tests.guards.worlds import RATED, SHAPES, random_data

Case = tuple[str, str]
TIMELESS = ("ordinary", "sold-once-no-times")
# Large shares, so that there are a hundred new items to rank among.
OPTIONS = {"newcomers": {"share": 0.35, "validation_share": 0.1}}
CASES: list[Case] = [
    (shape, split)
    for shape in SHAPES
    for split in ("leave-one-out", "random", "global-time", "newcomers")
    if not (split == "global-time" and shape in TIMELESS)
]
AUTO = {shape: "random" if shape in TIMELESS else "global-time" if "once" in shape else "leave-one-out" for shape in SHAPES}

SEEDS = 3  # draws of the data, over which the figures of fast models are pooled
# The small matrix: closed-form models in every case; of the others one in each case, in turn. With refit and without in turn.
SMALL = [
    (case, model, (number + place) % 2 == 1) for number, case in enumerate(CASES) for place, model in enumerate(CLOSED_FORM)
]
SMALL += [(case, TRAINED[number % len(TRAINED)], number // len(TRAINED) % 2 == 1) for number, case in enumerate(CASES)]
WHOLE = [(case, model, refit) for case in CASES for model in RANKING for refit in (False, True)]
BY_HEART = {"k": 32, "epochs": 30, "lr": 0.02, "patience": 30}  # what `mf` remembers each of its training rows by

data_of = cache(random_data)


def shares_of(case: Case, model: str, refit: bool, n_seeds: int = 1, **more: Any) -> list[Share]:
    shape, split = case
    options = OPTIONS.get(split)
    return pooled(
        [
            hit_rates(quick(model, **more).fit(data_of(shape, seed), split, refit=refit, split_options=options))
            for seed in range(n_seeds)
        ]
    )


def surprises(shares: list[Share], n_fits: int) -> list[str]:
    return [str(share) for share in shares if not share.is_at_chance(n_fits * len(shares))]


def name_of(case: object) -> str:
    return "-".join(case) if isinstance(case, tuple) else "refit" if case is True else "" if case is False else str(case)


@pytest.mark.parametrize(("case", "model", "refit"), SMALL, ids=name_of)
def test_it_is_at_chance(case: Case, model: str, refit: bool) -> None:
    assert surprises(shares_of(case, model, refit, SEEDS if model in CLOSED_FORM else 1), len(SMALL)) == []


@pytest.mark.slow
@pytest.mark.parametrize(("case", "model", "refit"), WHOLE, ids=name_of)
def test_it_is_at_chance_in_the_whole_matrix(case: Case, model: str, refit: bool) -> None:
    assert surprises(shares_of(case, model, refit), len(WHOLE)) == []


@pytest.mark.slow
@pytest.mark.parametrize("refit", [False, True])
@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_who_learns_the_training_rows_by_heart_is_at_chance(case: Case, refit: bool) -> None:
    assert surprises(shares_of(case, "mf", refit, SEEDS, **BY_HEART), 2 * len(CASES)) == []


@pytest.mark.parametrize("split", ["leave-one-out", "random"])
def test_a_repeated_pair_is_ranked_among_what_the_user_had(split: str) -> None:
    """A user who chooses anything anew, whatever they had, is as likely to take what they had. Ranked among items they never had,
    such a target would be known by that alone."""
    assert surprises(shares_of(("repeats", split), "item-knn", False, 8), 2) == []


@pytest.mark.parametrize("shape", SHAPES)
def test_the_split_is_chosen_by_the_data(shape: str) -> None:
    assert make_split(data_of(shape)).name == AUTO[shape]


def test_the_bound_finds_a_leak() -> None:
    """Among all items ever sold, who knows only which of them training has not seen is far above chance."""
    data = data_of("sold-once")
    split = make_split(data)
    is_new = ~np.isin(np.arange(len(data.items)), data.item_numbers[split.train])
    ranker = FixedRanker(is_new.astype(np.float32))
    leak = evaluate_ranking(ranker, data, split.test, "sampled")
    assert not Share("leak", leak.metrics["hr@10"], 0.1, len(split.test)).is_at_chance(10_000)
    mended = evaluate_held_out(ranker, data, split, "test")
    counts = Candidates.of_part(data, split, "test").sampler.counts(
        data.user_numbers[split.test], data.item_numbers[split.test]
    )
    assert Share("mended", mended.metrics["hr@10"], float((10 / counts).mean()), len(split.test)).is_at_chance(1)


class FixedRanker:
    """The same score of an item for everybody."""

    def __init__(self, scores: np.ndarray) -> None:
        self.scores = scores

    def score_all(self, users: np.ndarray, items: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        return np.tile(self.scores[items], (len(users), 1))

    def score_pairs(self, users: np.ndarray, items: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        return self.scores[items]


RATING = [(shape, split) for shape in RATED for split in ("leave-one-out", "random", "global-time", "newcomers")]
IMPLICIT = [(shape, "random") for shape in SHAPES]
PREDICTING = [name for name, info in MODELS.items() if "rating" in info.tasks]
LABELLED = [
    (task, case, model)
    for task, cases in (("rating", RATING), ("implicit", IMPLICIT))
    for case in cases
    for model in PREDICTING
    if task in MODELS[model].tasks
]
SMALL_LABELLED = [(task, case, model) for task, case, model in LABELLED if model in ("fm", "mf")]


def gain_of(task: str, case: Case, model: str, **more: Any) -> float:
    shape, split = case
    recommender = quick(model, task, **more).fit(data_of(shape), split)
    instances = recommender.fitted.instances
    labels = data_of(shape).interactions["label"].to_numpy() if instances is None else instances.labels
    return gain_on_constant(recommender, labels.astype(np.float64))


@pytest.mark.parametrize(("task", "case", "model"), SMALL_LABELLED, ids=name_of)
def test_no_label_is_predicted_better_than_by_the_mean(task: str, case: Case, model: str) -> None:
    assert gain_of(task, case, model) < norm.isf(ALPHA / len(SMALL_LABELLED))


@pytest.mark.slow
@pytest.mark.parametrize(("task", "case", "model"), LABELLED, ids=name_of)
def test_no_label_is_predicted_better_than_by_the_mean_in_the_whole_matrix(task: str, case: Case, model: str) -> None:
    for more in ({}, {"k": 16, "epochs": 20, "lr": 0.02, "patience": 20}):
        assert gain_of(task, case, model, **more) < norm.isf(ALPHA / (2 * len(LABELLED)))
