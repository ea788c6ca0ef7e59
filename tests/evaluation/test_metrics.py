from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gmlfm.errors import DataError
from gmlfm.evaluation.metrics import auc, coverage, log_loss, mae, novelty, places, ranking_metrics, rmse
from gmlfm.evaluation.significance import bootstrap_interval, compare, paired_t_test, wilcoxon


@given(st.lists(st.integers(0, 3), min_size=1, max_size=6), st.integers(0, 3), st.integers(1, 4))
def test_metrics_are_the_mean_over_every_order_of_ties(others: list[int], target: int, n: int) -> None:
    """The slow twin: every permutation of the candidates, then a stable sort by score."""
    scored = [(target, True), *((one, False) for one in others)]
    hits, gains, reciprocal = [], [], []
    for order in itertools.permutations(scored):
        ranked = sorted(order, key=lambda one: -one[0])
        place = next(at for at, one in enumerate(ranked) if one[1])
        hits.append(place < n)
        gains.append(1 / math.log2(place + 2) if place < n else 0.0)
        reciprocal.append(1 / (place + 1) if place < n else 0.0)
    found = ranking_metrics(places(np.array([target], np.float32), np.array([others], np.float32)), n)
    assert found[f"hr@{n}"][0] == pytest.approx(np.mean(hits))
    assert found[f"ndcg@{n}"][0] == pytest.approx(np.mean(gains))
    assert found[f"mrr@{n}"][0] == pytest.approx(np.mean(reciprocal))
    assert found[f"precision@{n}"][0] == pytest.approx(np.mean(hits) / n)


def test_a_constant_scorer_gets_its_chance_and_no_more() -> None:
    where = places(np.zeros(5, np.float32), np.zeros((5, 99), np.float32))
    assert ranking_metrics(where)["hr@10"].tolist() == pytest.approx([0.1] * 5)


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
def test_auc_is_the_share_of_pairs_in_the_right_order(scored: list[tuple[int, bool]]) -> None:
    positives, negatives = [one for one, yes in scored if yes], [one for one, yes in scored if not yes]
    found = auc(np.array([one for one, _ in scored], float), np.array([yes for _, yes in scored]))
    if not positives or not negatives:
        assert math.isnan(found)
        return
    wins = sum((a > b) + 0.5 * (a == b) for a in positives for b in negatives)
    assert found == pytest.approx(wins / (len(positives) * len(negatives)))


def test_log_loss_coverage_and_novelty() -> None:
    assert log_loss(np.array([0.0, 2.0]), np.array([True, False])) == pytest.approx(
        (math.log(2) + math.log(1 + math.exp(2))) / 2
    )
    recommended = np.array([[0, 1], [1, -1]], np.int32)
    assert coverage(recommended, 4) == 0.5
    assert novelty(recommended, np.array([3, 0, 9]), 7) == pytest.approx(-(math.log2(4 / 8) + 2 * math.log2(1 / 8)) / 3)


def test_paired_tests_agree_with_scipy() -> None:
    from scipy import stats

    rng = np.random.default_rng(0)
    for n in (5, 30, 500):
        apart = rng.normal(0.2, 1, n)
        assert paired_t_test(apart) == pytest.approx(stats.ttest_1samp(apart, 0).pvalue, rel=1e-9)
        assert wilcoxon(apart) == pytest.approx(stats.wilcoxon(apart, method="asymptotic", correction=False).pvalue, rel=1e-9)
    tied = rng.integers(-2, 3, 200).astype(float)
    assert wilcoxon(tied) == pytest.approx(stats.wilcoxon(tied, method="asymptotic", correction=False).pvalue, rel=1e-9)


def test_a_comparison_of_two_runs() -> None:
    rng = np.random.default_rng(1)
    one = rng.random(400)
    found = compare(one + 0.1, one)
    assert found.difference == pytest.approx(0.1)
    assert (found.t_test, found.wilcoxon) == (pytest.approx(0.0, abs=1e-9), pytest.approx(0.0, abs=1e-9))
    assert compare(one, one).t_test == 1.0
    low, high = bootstrap_interval(one)
    assert low < one.mean() < high
    with pytest.raises(DataError, match="cannot be paired"):
        compare(one, one[1:])
