"""Metrics. Ranking metrics are expectations over the order of tied items.

A model that scores everything alike must not reach HR@10 = 1 because its target was listed first: among 100 it gets .10.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gmlfm.errors import DataError

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Places:
    """Where each target stands: how many candidates are strictly better, and how many others tie with it."""

    better: npt.NDArray[np.int64]
    tied: npt.NDArray[np.int64]


def places(target: npt.NDArray[np.float32], others: npt.NDArray[np.float32]) -> Places:
    """target (N,), others (N, C); -inf among the others stands for an item that is no candidate."""
    if np.isnan(target).any() or np.isnan(others).any():
        raise DataError("a score is no number (NaN), so nothing can be ranked.")
    return Places((others > target[:, None]).sum(axis=1), (others == target[:, None]).sum(axis=1))


def ranking_metrics(where: Places, n: int = 10) -> dict[str, Floats]:
    """Expected metrics of queries with one target each: recall is then HR, precision HR / n, and MAP is MRR cut at n."""
    gains = 1.0 / np.log2(np.arange(n) + 2.0)
    reciprocal = 1.0 / np.arange(1, n + 1)
    hit = _expected(where, np.ones(n))
    found = _expected(where, reciprocal)
    return {
        f"hr@{n}": hit,
        f"ndcg@{n}": _expected(where, gains),
        f"mrr@{n}": found,
        f"recall@{n}": hit,
        f"precision@{n}": hit / n,
        f"map@{n}": found,
    }


def _expected(where: Places, gain: Floats) -> Floats:
    """Mean of gain[p] over the places better .. better + tied, with no gain from place n on."""
    total = np.concatenate([[0.0], np.cumsum(gain)])
    n = len(gain)
    first, last = np.minimum(where.better, n), np.minimum(where.better + where.tied + 1, n)
    result: Floats = (total[last] - total[first]) / (where.tied + 1)
    return result


def rmse(predicted: Floats, truth: Floats) -> float:
    return float(np.sqrt(np.mean((predicted - truth) ** 2)))


def mae(predicted: Floats, truth: Floats) -> float:
    return float(np.mean(np.abs(predicted - truth)))


def auc(predicted: Floats, positive: npt.NDArray[np.bool_]) -> float:
    """The chance that a positive scores above a negative, ties counting half."""
    n_positive = int(positive.sum())
    n_negative = len(positive) - n_positive
    if n_positive == 0 or n_negative == 0:
        return float("nan")
    _, inverse, counts = np.unique(predicted, return_inverse=True, return_counts=True)
    middle = np.cumsum(counts) - (counts - 1) / 2.0
    ranks = middle[inverse]
    return float((ranks[positive].sum() - n_positive * (n_positive + 1) / 2.0) / (n_positive * n_negative))


def log_loss(predicted: Floats, positive: npt.NDArray[np.bool_]) -> float:
    """Of the scores as log-odds."""
    return float(np.mean(np.logaddexp(0.0, np.where(positive, -predicted, predicted))))


def coverage(recommended: npt.NDArray[np.int32], n_candidates: int) -> float:
    """The share of candidates that anybody was recommended."""
    return len(np.unique(recommended[recommended >= 0])) / max(n_candidates, 1)


def novelty(recommended: npt.NDArray[np.int32], popularity: npt.NDArray[np.int64], n_users: int) -> float:
    """Mean of -log2 of the share of users who had the item, one more counted for each."""
    shares = (popularity + 1.0) / (n_users + 1.0)
    return float(-np.log2(shares[recommended[recommended >= 0]]).mean())
