"""What chance gives, and how far from it a figure may be.

The item of a tested row is drawn without looking at anything that a model may see: each of its C candidates is it with
probability 1 / C, so that HR@k is min(k, C) / C on average. The tested rows of a matrix are independent given the training rows,
or drawn without replacement, which spreads less; a hit, or its expectation under ties, lies in [0, 1]. So by Hoeffding's
inequality, for n rows of mean expectation p,

    P(HR >= h) <= exp(-n KL(h || p)) for h > p, and likewise below,    KL(h || p) = h log(h / p) + (1 - h) log((1 - h) / (1 - p)),

without an approximation for small counts. A matrix of m checks holds each to ALPHA / m, both sides together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gmlfm import Recommender
from gmlfm.evaluation.candidates import N_SAMPLED, Candidates

ALPHA = 0.01
CUTOFFS = (10, 50)
PROTOCOLS = ("full", "sampled")


@dataclass(frozen=True)
class Share:
    """A share of n rows, and what chance gives."""

    name: str
    observed: float
    expected: float
    n: int

    @property
    def surprise(self) -> float:
        """n KL(observed || expected), in nats."""
        if self.expected >= 1.0:  # fewer candidates than places: nothing to be said
            return 0.0 if self.observed >= 1.0 else np.inf
        terms = (
            (self.observed, self.expected),
            (1.0 - self.observed, 1.0 - self.expected),
        )
        return self.n * sum(share * np.log(share / chance) for share, chance in terms if share > 0)

    def is_at_chance(self, n_checks: int) -> bool:
        return self.surprise <= np.log(2 * n_checks / ALPHA)

    def __str__(self) -> str:
        return f"{self.name}: {self.observed:.4f}, by chance {self.expected:.4f}, {self.n} rows, {self.surprise:.1f} nats"


def pooled(shares: list[list[Share]]) -> list[Share]:
    """Shares of several draws of the data, each under its name, as shares of all their rows."""
    result = []
    for of_name in zip(*shares, strict=True):
        n = sum(share.n for share in of_name)
        observed, expected = (sum(getattr(share, key) * share.n for share in of_name) / n for key in ("observed", "expected"))
        result.append(Share(of_name[0].name, observed, expected, n))
    return result


def gain_on_constant(recommender: Recommender, labels: np.ndarray) -> float:
    """By how many standard errors the squared errors of the tested rows are below those of the mean of the training labels."""
    run = recommender.fitted
    errors = recommender.evaluate().queries["squared_error"]
    gains = (labels[run.split.test] - labels[run.split.train].mean()) ** 2 - errors
    return float(gains.mean() / (gains.std(ddof=1) / np.sqrt(len(gains))))


def hit_rates(recommender: Recommender) -> list[Share]:
    """HR of the test part at each cut-off under each protocol, beside chance."""
    run, shares = recommender.fitted, []
    for protocol in PROTOCOLS:
        evaluation = recommender.evaluate(protocol=protocol, cutoffs=CUTOFFS)
        candidates = Candidates.of_part(run.data, run.split, "test", protocol)
        counts = candidates.sampler.counts(candidates.users, candidates.targets, candidates.times)
        counts = np.minimum(counts, N_SAMPLED + 1) if protocol == "sampled" else counts
        assert np.array_equal(evaluation.rows, candidates.rows)
        for cutoff in CUTOFFS:
            expected = float((np.minimum(cutoff, counts) / counts).mean())
            observed = float(evaluation.queries[f"hr@{cutoff}"].mean())
            shares.append(Share(f"{protocol} hr@{cutoff}", observed, expected, len(counts)))
    return shares
