"""Metrics. A new one is a decorated function in this file; every evaluation then reports it, at every cut-off.

    @ranking_metric("hr")      from each target's place and a cut-off n, a value for each query: hr@n
    @uncut_metric("mrr")       from each target's place alone, a value for each query: mrr
    @list_metric("coverage")   from the recommended lists, cut at n, a single value (protocol full only): coverage@n

Ranking metrics are expectations over the order of tied items: a model that scores everything alike must not reach HR@10 = 1
because its target was listed first; among 100 it gets .10.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from gmlfm.arguments import shown
from gmlfm.errors import DataError, OptionError
from gmlfm.retrieval.ranking import DEFAULT_N

Floats = npt.NDArray[np.float64]
_LARGEST_CUTOFF = 100_000


@dataclass(frozen=True)
class Places:
    """Where each target stands: how many candidates are strictly better, and how many others tie with it."""

    better: npt.NDArray[np.int64]
    tied: npt.NDArray[np.int64]


@dataclass(frozen=True)
class RecommendedLists:
    """items (N, n): the n best of each query, -1 where fewer exist. popularity: each item's interactions, by number."""

    items: npt.NDArray[np.int32]
    n_candidates: int
    popularity: npt.NDArray[np.int64]
    n_users: int


RankingMetric = Callable[[Places, int], Floats]
UncutMetric = Callable[[Places], Floats]
ListMetric = Callable[[RecommendedLists], float]
Metric = TypeVar("Metric", RankingMetric, UncutMetric, ListMetric)

_RANKING: dict[str, RankingMetric] = {}
_UNCUT: dict[str, UncutMetric] = {}
_LISTS: dict[str, ListMetric] = {}


def ranking_metric(name: str) -> Callable[[RankingMetric], RankingMetric]:
    return _registration(_RANKING, name, _RANKING.keys() | _LISTS.keys())


def uncut_metric(name: str) -> Callable[[UncutMetric], UncutMetric]:
    return _registration(_UNCUT, name, _UNCUT.keys())


def list_metric(name: str) -> Callable[[ListMetric], ListMetric]:
    return _registration(_LISTS, name, _RANKING.keys() | _LISTS.keys())


def _registration(registry: dict[str, Metric], name: str, taken: Collection[str]) -> Callable[[Metric], Metric]:
    if name in taken:
        raise OptionError(f"a metric '{name}' is registered already; choose another name.")

    def register(metric: Metric) -> Metric:
        registry[name] = metric
        return metric

    return register


def expected_gain(places: Places, gains: Floats) -> Floats:
    """The mean of gains[p] over the places p = better .. better + tied, which gain nothing from len(gains) on."""
    sums = np.concatenate([[0.0], np.cumsum(gains)])
    n = len(gains)
    start, end = np.minimum(places.better, n), np.minimum(places.better + places.tied + 1, n)
    result: Floats = (sums[end] - sums[start]) / (places.tied + 1)
    return result


# Each query has one target: recall is then HR, precision HR / n, and MAP is MRR cut at n.
@ranking_metric("hr")
def hit_rate(places: Places, n: int) -> Floats:
    return expected_gain(places, np.ones(n))


@ranking_metric("ndcg")
def ndcg(places: Places, n: int) -> Floats:
    return expected_gain(places, 1.0 / np.log2(np.arange(n) + 2.0))


@ranking_metric("mrr")
def reciprocal_rank(places: Places, n: int) -> Floats:
    return expected_gain(places, 1.0 / np.arange(1, n + 1))


@ranking_metric("recall")
def recall(places: Places, n: int) -> Floats:
    return hit_rate(places, n)


@ranking_metric("precision")
def precision(places: Places, n: int) -> Floats:
    return hit_rate(places, n) / n


@ranking_metric("map")
def average_precision(places: Places, n: int) -> Floats:
    return reciprocal_rank(places, n)


@uncut_metric("mrr")
def uncut_reciprocal_rank(places: Places) -> Floats:
    """(H(better + tied + 1) - H(better)) / (tied + 1), where H(m) = 1 + 1/2 + ... + 1/m = digamma(m + 1) + constant."""
    from scipy.special import digamma  # takes a fifth of a second to load, which serving a run need not wait for

    ranks = places.better + 1.0
    tied: Floats = (digamma(ranks + places.tied + 1) - digamma(ranks)) / (places.tied + 1)
    return np.where(places.tied == 0, 1.0 / ranks, tied)  # without a tie exactly, not as a difference of sums


@list_metric("coverage")
def coverage(lists: RecommendedLists) -> float:
    """The share of candidates that stand in any list."""
    return len(np.unique(lists.items[lists.items >= 0])) / max(lists.n_candidates, 1)


@list_metric("novelty")
def novelty(lists: RecommendedLists) -> float:
    """Mean of -log2 of the share of users who had the item, one more counted for each."""
    shares = (lists.popularity + 1.0) / (lists.n_users + 1.0)
    return float(-np.log2(shares[lists.items[lists.items >= 0]]).mean())


def default_metric(name: str) -> str:
    """The name under which a metric is reported at the default cut-off: ndcg -> ndcg@10."""
    return f"{name}@{DEFAULT_N}"


def checked_cutoffs(cutoffs: Sequence[int]) -> tuple[int, ...]:
    """The cut-offs in order."""
    numbers = tuple(cutoffs) if isinstance(cutoffs, Sequence | np.ndarray) else ()
    are_counts = all(isinstance(n, int | np.integer) and not isinstance(n, bool) and 1 <= n <= _LARGEST_CUTOFF for n in numbers)
    if not numbers or not are_counts or len(set(numbers)) < len(numbers):
        raise OptionError(
            f"cutoffs is {shown(cutoffs)}; expected whole numbers from 1 to {_LARGEST_CUTOFF:,}, each once: (5, {DEFAULT_N})."
        )
    return tuple(sorted(int(n) for n in numbers))


def places(target: npt.NDArray[np.float32], others: npt.NDArray[np.float32]) -> Places:
    """target (N,), others (N, C); -inf among the others stands for an item that is no candidate."""
    if np.isnan(target).any() or np.isnan(others).any():
        raise DataError("a score is no number (NaN), so nothing can be ranked.")
    return Places((others > target[:, None]).sum(axis=1), (others == target[:, None]).sum(axis=1))


def ranking_metrics(places: Places, cutoffs: Sequence[int] = (DEFAULT_N,)) -> dict[str, Floats]:
    """Every metric of places, a value for each query: name@n for each cut-off n, then those without a cut-off."""
    values = {f"{name}@{n}": metric(places, n) for n in checked_cutoffs(cutoffs) for name, metric in _RANKING.items()}
    return values | {name: metric(places) for name, metric in _UNCUT.items()}


def list_metrics(lists: RecommendedLists, cutoffs: Sequence[int] = (DEFAULT_N,)) -> dict[str, float]:
    """Every metric of lists at each cut-off; lists hold the largest cut-off's items."""
    cut = {n: replace(lists, items=lists.items[:, :n]) for n in checked_cutoffs(cutoffs)}
    return {f"{name}@{n}": metric(cut[n]) for n in cut for name, metric in _LISTS.items()}


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
