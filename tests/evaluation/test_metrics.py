from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gmlfm.errors import DataError, OptionError
from gmlfm.evaluation import metrics
from gmlfm.evaluation.metrics import (
    Places,
    RecommendedLists,
    auc,
    checked_cutoffs,
    coverage,
    default_metric,
    expected_gain,
    list_metric,
    list_metrics,
    log_loss,
    mae,
    novelty,
    places,
    ranking_metric,
    ranking_metrics,
    rmse,
    uncut_metric,
)
from gmlfm.retrieval.ranking import DEFAULT_N

LISTS = RecommendedLists(np.array([[0, 1], [1, -1]], np.int32), 4, np.array([3, 0, 9]), 7)


@pytest.fixture
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Metrics that a test registers are gone after it."""
    for registry in ("_RANKING", "_UNCUT", "_LISTS"):
        monkeypatch.setattr(metrics, registry, dict(getattr(metrics, registry)))


@given(st.lists(st.integers(0, 3), min_size=1, max_size=6), st.integers(0, 3))
def test_metrics_are_the_mean_over_every_order_of_ties(others: list[int], target: int) -> None:
    """The slow twin: every permutation of the candidates, then a stable sort by score."""
    candidates = [(target, True), *((score, False) for score in others)]
    target_places = []
    for order in itertools.permutations(candidates):
        ranked = sorted(order, key=lambda candidate: -candidate[0])
        target_places.append(next(place for place, (_, is_target) in enumerate(ranked) if is_target))
    values = ranking_metrics(places(np.array([target], np.float32), np.array([others], np.float32)), (1, 2, 4))
    for n in (1, 2, 4):
        hit = np.mean([place < n for place in target_places])
        reciprocal = np.mean([1 / (place + 1) if place < n else 0.0 for place in target_places])
        assert values[f"hr@{n}"][0] == values[f"recall@{n}"][0] == pytest.approx(hit)
        assert values[f"ndcg@{n}"][0] == pytest.approx(
            np.mean([1 / math.log2(place + 2) if place < n else 0.0 for place in target_places])
        )
        assert values[f"mrr@{n}"][0] == values[f"map@{n}"][0] == pytest.approx(reciprocal)
        assert values[f"precision@{n}"][0] == pytest.approx(hit / n)
    assert values["mrr"][0] == pytest.approx(np.mean([1 / (place + 1) for place in target_places]), rel=1e-12)


def test_the_default_cutoff_is_reported_in_its_order() -> None:
    values = ranking_metrics(Places(np.array([0]), np.array([0])))
    ours = ["hr@10", "ndcg@10", "mrr@10", "recall@10", "precision@10", "map@10", "mrr"]
    assert [name for name in values if name in ours] == ours
    assert list(values) == [*(f"{name}@10" for name in metrics._RANKING), *metrics._UNCUT]  # whatever is registered, no more
    assert default_metric("ndcg") == f"ndcg@{DEFAULT_N}" == "ndcg@10"


def test_each_cutoff_gives_what_it_gives_alone() -> None:
    rng = np.random.default_rng(0)
    ranks = Places(rng.integers(0, 30, 50), rng.integers(0, 5, 50))
    together = ranking_metrics(ranks, (20, 5, 1))
    at_one_cutoff = ranking_metrics(ranks)
    assert len(together) == len(at_one_cutoff) + 2 * sum("@" in name for name in at_one_cutoff)
    for n in (1, 5, 20):
        for name, values in ranking_metrics(ranks, (n,)).items():
            np.testing.assert_array_equal(together[name], values)


def test_the_uncut_reciprocal_rank_is_exact_far_down_a_large_catalogue() -> None:
    """Without ties as with them: a difference of harmonic numbers alone loses digits."""
    ranks = Places(np.array([0, 4, 9_999_999, 1_000, 0]), np.array([0, 0, 0, 2, 1]))
    expected = [1.0, 0.2, 1e-7, (1 / 1001 + 1 / 1002 + 1 / 1003) / 3, 0.75]
    np.testing.assert_allclose(ranking_metrics(ranks)["mrr"], expected, rtol=1e-11)
    assert ranking_metrics(ranks)["mrr"][2] == 1e-7


def test_a_constant_scorer_gets_its_chance_and_no_more() -> None:
    ranks = places(np.zeros(5, np.float32), np.zeros((5, 99), np.float32))
    assert ranking_metrics(ranks)["hr@10"].tolist() == pytest.approx([0.1] * 5)


@pytest.mark.parametrize("cutoffs", [(), (0,), (5, -1), (5, 5), (2.5,), (True,), "10", ("10",), None])
def test_wrong_cutoffs_are_refused(cutoffs: Any) -> None:
    with pytest.raises(OptionError, match=r"^cutoffs is .*; expected whole numbers from 1 to 100,000, each once: \(5, 10\)\.$"):
        checked_cutoffs(cutoffs)


def test_cutoffs_are_put_in_order() -> None:
    assert checked_cutoffs([20, np.int64(5)]) == checked_cutoffs(np.array([5, 20])) == (5, 20)  # type: ignore[arg-type]


@pytest.mark.usefixtures("_own_registry")
def test_a_new_metric_is_one_decorated_function() -> None:
    @ranking_metric("top-half")
    def _(places: Places, n: int) -> Any:
        return expected_gain(places, np.ones((n + 1) // 2))

    @uncut_metric("mean-rank")
    def _(places: Places) -> Any:
        return places.better + places.tied / 2 + 1.0

    @list_metric("n-lists")
    def _(lists: RecommendedLists) -> float:
        return float(lists.items.shape[0])

    values = ranking_metrics(Places(np.array([0, 2]), np.array([0, 1])), (4,))
    assert values["top-half@4"].tolist() == [1.0, 0.0]
    assert values["mean-rank"].tolist() == [1.0, 3.5]
    assert list_metrics(LISTS, (1,))["n-lists@1"] == 2.0


@pytest.mark.usefixtures("_own_registry")
@pytest.mark.parametrize(
    ("register", "name"), [(ranking_metric, "ndcg"), (ranking_metric, "novelty"), (list_metric, "hr"), (uncut_metric, "mrr")]
)
def test_a_name_is_registered_once(register: Any, name: str) -> None:
    with pytest.raises(OptionError, match=f"^a metric '{name}' is registered already; choose another name.$"):
        register(name)


def test_nan_raises() -> None:
    with pytest.raises(DataError, match="NaN"):
        places(np.array([np.nan], np.float32), np.zeros((1, 3), np.float32))
    with pytest.raises(DataError, match="NaN"):
        places(np.zeros(1, np.float32), np.array([[np.nan]], np.float32))


def test_errors_of_predictions() -> None:
    predicted, truth = np.array([1.0, 2.0, 4.0]), np.array([1.0, 4.0, 3.0])
    assert rmse(predicted, truth) == pytest.approx(math.sqrt(5 / 3))
    assert mae(predicted, truth) == pytest.approx(1.0)


@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=2, max_size=20))
def test_auc_is_the_share_of_pairs_in_the_right_order(instances: list[tuple[int, bool]]) -> None:
    positives = [score for score, is_positive in instances if is_positive]
    negatives = [score for score, is_positive in instances if not is_positive]
    share = auc(np.array([score for score, _ in instances], float), np.array([is_positive for _, is_positive in instances]))
    if not positives or not negatives:
        assert math.isnan(share)
        return
    wins = sum((a > b) + 0.5 * (a == b) for a in positives for b in negatives)
    assert share == pytest.approx(wins / (len(positives) * len(negatives)))


def test_log_loss_coverage_and_novelty() -> None:
    assert log_loss(np.array([0.0, 2.0]), np.array([True, False])) == pytest.approx(
        (math.log(2) + math.log(1 + math.exp(2))) / 2
    )
    assert coverage(LISTS) == 0.5
    assert novelty(LISTS) == pytest.approx(-(math.log2(4 / 8) + 2 * math.log2(1 / 8)) / 3)
    expected = {
        "coverage@1": 0.5,
        "novelty@1": pytest.approx(-(math.log2(4 / 8) + math.log2(1 / 8)) / 2),
        "coverage@2": 0.5,
        "novelty@2": novelty(LISTS),
    }
    values = list_metrics(LISTS, (1, 2))
    assert {name: values[name] for name in expected} == expected
    assert set(values) == {f"{name}@{n}" for name in metrics._LISTS for n in (1, 2)}
