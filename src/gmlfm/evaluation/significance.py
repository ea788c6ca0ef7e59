"""Is one run better than another? Paired tests over the same queries; intervals by the bootstrap and over users."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gmlfm.errors import DataError

Floats = npt.NDArray[np.float64]
_VALUES_PER_BATCH = 1_000_000
_NORMAL_95 = 1.959963984540054


@dataclass(frozen=True)
class Comparison:
    """The mean of one run minus the other's, its 95 % bootstrap interval, and two-sided p-values."""

    difference: float
    low: float
    high: float
    t_test: float
    wilcoxon: float


def compare(values: Floats, baseline: Floats, seed: int = 0) -> Comparison:
    """values, baseline: a metric's value for each query, in the same order."""
    if len(values) != len(baseline):
        raise DataError(f"{len(values):,} results cannot be paired with {len(baseline):,}: both runs must test the same rows.")
    differences = np.asarray(values, np.float64) - np.asarray(baseline, np.float64)
    low, high = bootstrap_interval(differences, seed)
    return Comparison(float(differences.mean()), low, high, paired_t_test(differences), wilcoxon(differences))


def bootstrap_interval(values: Floats, seed: int = 0, n: int = 2000, share: float = 0.95) -> tuple[float, float]:
    """The mean's interval from the percentiles of n resampled means."""
    if len(values) < 2:
        return float(values[0]), float(values[0])
    stats = _stats()
    interval = stats.bootstrap(
        (values,),
        np.mean,
        n_resamples=n,
        batch=max(1, _VALUES_PER_BATCH // len(values)),  # bounds the memory: resamples are drawn a batch at a time
        confidence_level=share,
        method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return float(interval.low), float(interval.high)


def error_over_users(values: Floats, users: npt.NDArray[np.integer[Any]]) -> float:
    r"""The standard error of the mean over queries, users counting as drawn and each with all of their queries.

    .. math:: \frac1n \sqrt{\frac{U}{U - 1} \sum_{u=1}^U \Big( \sum_{q \in u} (x_q - \bar x) \Big)^2}

    With a query a user this is the standard deviation over the root of n. 0 where there is but one user.
    """
    _, numbers = np.unique(users, return_inverse=True)
    sums = np.bincount(numbers, weights=values - values.mean())
    if len(sums) < 2:
        return 0.0
    return float(np.sqrt(len(sums) / (len(sums) - 1) * np.sum(sums**2)) / len(values))


def normal_interval(mean: float, error: float) -> tuple[float, float]:
    """95 %: 1.96 standard errors to either side."""
    return mean - _NORMAL_95 * error, mean + _NORMAL_95 * error


def paired_t_test(differences: Floats) -> float:
    """Two-sided p of the mean difference being 0."""
    if len(differences) < 2 or not differences.any():
        return 1.0
    with warnings.catch_warnings():
        # Differences that are all but constant leave a variance of rounding errors: p is then 0, as it should be.
        warnings.filterwarnings("ignore", "Precision loss occurred", RuntimeWarning)
        return float(_stats().ttest_1samp(differences, 0.0).pvalue)


def wilcoxon(differences: Floats) -> float:
    """Two-sided p of the signed-rank test, by the normal approximation with ties corrected; zeros are left out."""
    if not differences.any():
        return 1.0
    return float(_stats().wilcoxon(differences, zero_method="wilcox", correction=False, method="asymptotic").pvalue)


def _stats() -> Any:
    """Half a second to load, for which nobody waits who compares nothing."""
    from scipy import stats

    return stats
