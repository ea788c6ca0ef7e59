"""Two roads, one result: one thread and two, compiled kernels and eager steps, in memory and saved.

Memory and prepared folders are compared in tests/fitting/test_two_roads.py.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gmlfm import Recommender
from tests.guards.quick import quick
from tests.guards.worlds import planted_data, random_data

LEARNING: dict[str, Any] = {"k": 8, "epochs": 3, "lr": 0.01}
COMPILED = ("fm", "mf", "bpr-mf", "gml-fm", "gml-fm-md", "transfm")
data_of = cache(planted_data)


def scores_of(recommender: Recommender) -> np.ndarray:
    data = recommender.fitted.data
    users, items = np.arange(len(data.users), dtype=np.int32), np.arange(len(data.items), dtype=np.int32)
    return recommender.fitted.ranker.score_all(users, items)


def check_alike(left: Recommender, right: Recommender) -> None:
    """Sums in another order: their last digits differ, and grow in training; never what is learned."""
    scores, others = scores_of(left), scores_of(right)
    if left.fitted.settings.training.loss == "bpr":
        # Differences alone are trained: the gradient of a user's own term is 0 but for rounding, of which Adam makes steps.
        scores, others = (values - values.mean(axis=1, keepdims=True) for values in (scores, others))
    np.testing.assert_allclose(others, scores, atol=1e-2 * float(scores.std()) + 1e-5)
    metrics, other_metrics = (recommender.evaluate(protocol="sampled").metrics for recommender in (left, right))
    assert other_metrics["hr@10"] == pytest.approx(metrics["hr@10"], abs=0.01)
    for name in ("hr@10", "ndcg@10"):
        assert right.fitted.validation[name] == pytest.approx(left.fitted.validation[name], abs=0.01)
    assert left.fitted.best_epoch == right.fitted.best_epoch


@pytest.mark.parametrize("model", ["fm", "mf", "gml-fm", "ncf", "ngcf", "ease"])
def test_one_thread_and_two(model: str) -> None:
    try:
        check_alike(*(quick(model, **LEARNING, threads=threads).fit(data_of("attributes"), "random") for threads in (1, 2)))
    finally:
        torch.set_num_threads(1)


@pytest.mark.parametrize("model", COMPILED)
def test_compiled_and_eager(model: str) -> None:
    settings = {**LEARNING, **({"history": "none"} if model == "fm" else {})}  # with one there is one engine
    check_alike(
        *(quick(model, **settings, engine=engine).fit(data_of("attributes"), "random") for engine in ("compiled", "eager"))
    )


@pytest.mark.parametrize("refit", [False, True])
@pytest.mark.parametrize("model", ["fm", "ncf", "popularity", "ease"])
def test_saved_and_loaded(model: str, refit: bool, tmp_path: Path) -> None:
    """With listing times, which decide the candidates and must be kept with the run."""
    recommender = quick(model).fit(random_data("sold-once-listed"), refit=refit)
    recommender.save(tmp_path / "run")
    loaded = Recommender.load(tmp_path / "run")
    assert np.array_equal(scores_of(recommender), scores_of(loaded))
    for protocol in ("full", "sampled"):
        evaluation, again = (each.evaluate(protocol=protocol) for each in (recommender, loaded))
        assert evaluation.metrics == again.metrics
        assert evaluation.candidates_hash == again.candidates_hash
        assert np.array_equal(evaluation.rows, again.rows)
