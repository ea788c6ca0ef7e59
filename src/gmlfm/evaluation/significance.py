"""Is one run better than another? Paired tests over the same queries, and bootstrap intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import stdtr

from gmlfm.errors import DataError

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Comparison:
    """The mean of one minus the other, its 95 % bootstrap interval, and two-sided p-values."""

    difference: float
    low: float
    high: float
    t_test: float
    wilcoxon: float


def compare(one: Floats, other: Floats, seed: int = 0) -> Comparison:
    """one, other: a metric's value for each query, in the same order."""
    if len(one) != len(other):
        raise DataError(f"{len(one):,} results cannot be paired with {len(other):,}: both runs must test the same rows.")
    apart = np.asarray(one, np.float64) - np.asarray(other, np.float64)
    low, high = bootstrap_interval(apart, seed)
    return Comparison(float(apart.mean()), low, high, paired_t_test(apart), wilcoxon(apart))


def bootstrap_interval(values: Floats, seed: int = 0, n: int = 2000, share: float = 0.95) -> tuple[float, float]:
    """The mean's interval from resampled means."""
    rng = np.random.default_rng(seed)
    means = np.array([values[rng.integers(0, len(values), len(values))].mean() for _ in range(n)])
    low, high = np.quantile(means, [(1 - share) / 2, (1 + share) / 2])
    return float(low), float(high)


def paired_t_test(apart: Floats) -> float:
    """Two-sided p of the mean difference being 0."""
    n = len(apart)
    if n < 2:
        return 1.0
    spread = apart.std(ddof=1)
    if spread == 0:
        return 1.0 if apart.mean() == 0 else 0.0
    t = abs(apart.mean()) / (spread / math.sqrt(n))
    return float(2.0 * stdtr(n - 1, -t))


def wilcoxon(apart: Floats) -> float:
    """Two-sided p of the signed-rank test, by the normal approximation with ties corrected; zeros are left out."""
    nonzero = apart[apart != 0]
    n = len(nonzero)
    if n == 0:
        return 1.0
    _, inverse, counts = np.unique(np.abs(nonzero), return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2.0)[inverse]
    total = ranks[nonzero > 0].sum()
    variance = n * (n + 1) * (2 * n + 1) / 24.0 - (counts**3 - counts).sum() / 48.0
    if variance <= 0:
        return 1.0
    z = (total - n * (n + 1) / 4.0) / math.sqrt(variance)
    return math.erfc(abs(z) / math.sqrt(2.0))
