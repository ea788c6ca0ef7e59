from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import stdtr

from gmlfm.errors import DataError
from gmlfm.evaluation.significance import (
    bootstrap_interval,
    compare,
    error_over_users,
    normal_interval,
    paired_t_test,
    wilcoxon,
)


def slow_t_test(differences: np.ndarray) -> float:
    n = len(differences)
    t = abs(differences.mean()) / (differences.std(ddof=1) / math.sqrt(n))
    return float(2.0 * stdtr(n - 1, -t))


def slow_wilcoxon(differences: np.ndarray) -> float:
    """The normal approximation: tied magnitudes share their mean rank, and the variance is corrected for them."""
    nonzero = [difference for difference in differences.tolist() if difference != 0]
    magnitudes = [abs(difference) for difference in nonzero]
    n = len(nonzero)
    ranks = [sum(other < size for other in magnitudes) + (magnitudes.count(size) + 1) / 2 for size in magnitudes]
    ties = sum(magnitudes.count(size) ** 3 - magnitudes.count(size) for size in set(magnitudes))
    variance = n * (n + 1) * (2 * n + 1) / 24 - ties / 48
    positive = sum(rank for rank, difference in zip(ranks, nonzero, strict=True) if difference > 0)
    return math.erfc(abs(positive - n * (n + 1) / 4) / math.sqrt(2 * variance))


@given(st.lists(st.integers(-4, 4), min_size=2, max_size=40))
def test_p_values_are_those_of_the_formulas(numbers: list[int]) -> None:
    differences = np.array(numbers) / 8
    if len(set(numbers)) > 1:
        assert paired_t_test(differences) == pytest.approx(slow_t_test(differences), rel=1e-9)
    if any(numbers):
        assert wilcoxon(differences) == pytest.approx(slow_wilcoxon(differences), rel=1e-9)


@pytest.mark.parametrize("n", [5, 30, 500])
def test_p_values_of_untied_differences(n: int) -> None:
    differences = np.random.default_rng(n).normal(0.2, 1, n)
    assert paired_t_test(differences) == pytest.approx(slow_t_test(differences), rel=1e-9)
    assert wilcoxon(differences) == pytest.approx(slow_wilcoxon(differences), rel=1e-9)


@pytest.mark.parametrize(
    ("differences", "t_test", "signed_rank"),
    [
        ([0.0] * 9, 1.0, 1.0),
        ([0.0], 1.0, 1.0),
        ([0.125] * 9, 0.0, math.erfc(3 / math.sqrt(2))),
        ([0.3], 1.0, math.erfc(0.5**0.5)),
    ],
)
def test_differences_without_spread(differences: list[float], t_test: float, signed_rank: float) -> None:
    assert paired_t_test(np.array(differences)) == t_test
    assert wilcoxon(np.array(differences)) == pytest.approx(signed_rank, rel=1e-9)


@pytest.mark.parametrize("n", [1, 2, 700])
def test_the_bootstrap_takes_percentiles_of_resampled_means(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(2).random(n)
    rng = np.random.default_rng(5)
    means = [values[rng.integers(0, n, n)].mean() for _ in range(2000)]
    expected = np.quantile(means, [0.025, 0.975])
    assert bootstrap_interval(values, seed=5) == pytest.approx(tuple(expected), rel=1e-12)
    monkeypatch.setattr("gmlfm.evaluation.significance._VALUES_PER_BATCH", 10_000)
    assert bootstrap_interval(values, seed=5) == pytest.approx(tuple(expected), rel=1e-12)


def test_a_comparison_of_two_runs() -> None:
    values = np.random.default_rng(1).random(400)
    comparison = compare(values + 0.1, values)
    assert comparison.difference == pytest.approx(0.1)
    assert comparison.low <= comparison.difference <= comparison.high
    assert (comparison.t_test, comparison.wilcoxon) == (pytest.approx(0.0, abs=1e-9), pytest.approx(0.0, abs=1e-9))
    assert compare(values, values).t_test == 1.0
    with pytest.raises(DataError, match="400 results cannot be paired with 399"):
        compare(values, values[1:])


def test_the_error_over_users_is_that_of_resampled_users() -> None:
    """Users with one to nine queries that are alike within a user: queries taken as independent would give too small an error."""
    rng = np.random.default_rng(0)
    users = np.repeat(np.arange(300), rng.integers(1, 10, 300))
    values = rng.normal(size=300)[users] + 0.3 * rng.normal(size=len(users))
    by_user = [values[users == user] for user in range(300)]
    means = [np.concatenate([by_user[user] for user in rng.integers(0, 300, 300)]).mean() for _ in range(2000)]
    assert error_over_users(values, users) == pytest.approx(np.std(means), rel=0.1)
    assert error_over_users(values, users) > 1.5 * values.std() / math.sqrt(len(values))


def test_the_error_of_a_query_a_user_is_the_usual_one() -> None:
    values = np.random.default_rng(1).random(50)
    assert error_over_users(values, np.arange(50)[::-1]) == pytest.approx(values.std(ddof=1) / math.sqrt(50))
    assert error_over_users(values, np.zeros(50, int)) == 0.0
    low, high = normal_interval(0.5, 0.1)
    assert (low, high) == (pytest.approx(0.5 - 0.196, abs=1e-4), pytest.approx(0.5 + 0.196, abs=1e-4))
