"""Protocols: against which candidates a tested row is ranked. One query is one tested row; its target is the row's item.

full      every candidate, as candidates.py defines them
sampled   99 of those, seeded; the lists have a hash and are the same for all models
paper     99 items of the interactions, ties counting as hits, as in the released code: for comparison with the published
          figures only
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from gmlfm.arguments import one_of, whole_number
from gmlfm.data.dataset import Dataset, Rows
from gmlfm.data.splits import Split
from gmlfm.errors import DataError
from gmlfm.evaluation import printing
from gmlfm.evaluation.candidates import N_SAMPLED, Candidates, Pairs
from gmlfm.evaluation.full import Report, rank_all
from gmlfm.evaluation.metrics import (
    Places,
    RecommendedLists,
    auc,
    checked_cutoffs,
    list_metrics,
    log_loss,
    mae,
    places,
    ranking_metrics,
    rmse,
)
from gmlfm.evaluation.significance import error_over_users, normal_interval
from gmlfm.retrieval import Ranker
from gmlfm.retrieval.ranking import DEFAULT_N

PROTOCOLS = ("full", "sampled", "paper")
Ints = npt.NDArray[np.int32]
Queries = dict[str, npt.NDArray[np.float64]]


@dataclass(frozen=True)
class Evaluation:
    """Means, and the value of each query, so that two runs can be compared query by query. rows, users: of each query."""

    protocol: str
    metrics: dict[str, float]
    queries: Queries = field(default_factory=dict)
    rows: Rows = field(default_factory=lambda: np.empty(0, np.int64))
    users: Ints = field(default_factory=lambda: np.empty(0, np.int32))
    candidates_hash: str = ""
    groups: dict[str, dict[str, float]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return printing.one_line(self)

    def __str__(self) -> str:
        return printing.as_text(self)

    def _repr_html_(self) -> str:
        return printing.as_html(self)

    def by_group(self, names: Sequence[str], group_of: npt.NDArray[np.int8]) -> Evaluation:
        """With the means of each group of queries (newcomers apart from the known), and how many they are."""
        groups = {}
        for index, name in enumerate(names):
            is_member = group_of == index
            if is_member.any():
                means = {key: float(values[is_member].mean()) for key, values in self.queries.items()}
                if "squared_error" in means:
                    means["rmse"], means["mae"] = means.pop("squared_error") ** 0.5, means.pop("absolute_error")
                groups[name] = {"rows": float(is_member.sum()), **means}
        return replace(self, groups=groups)

    @cached_property
    def errors(self) -> dict[str, float]:
        """The standard error of each metric that is a mean over queries: over users, each with all of their queries.
        One user alone tells nothing of others."""
        if len(np.unique(self.users)) < 2:
            return {}
        errors = {name: error_over_users(values, self.users) for name, values in self.queries.items()}
        if "squared_error" not in errors:
            return errors
        slope_of_root = 1.0 / (2.0 * self.metrics["rmse"]) if self.metrics["rmse"] > 0 else 0.0
        return {"rmse": slope_of_root * errors["squared_error"], "mae": errors["absolute_error"]}

    @property
    def intervals(self) -> dict[str, tuple[float, float]]:
        """Of the same metrics the 95 % interval, normal."""
        return {name: normal_interval(self.metrics[name], error) for name, error in self.errors.items()}

    def balanced(self) -> dict[str, float]:
        """The metrics with every group counting alike, however few its queries are: for choosing."""
        if not self.groups:
            return self.metrics
        return {name: float(np.mean([means[name] for means in self.groups.values()])) for name in self.queries}


def evaluate_ranking(
    ranker: Ranker,
    data: Dataset,
    rows: Rows,
    protocol: str = "full",
    *,
    seed: int = 0,
    cutoffs: Sequence[int] = (DEFAULT_N,),
    candidates: Ints | None = None,
    more: Pairs | None = None,
) -> Evaluation:
    """Rank the target of each row among the items of the interactions, or among those named. A split's part has candidates of
    its own: evaluate_held_out. more: positives that other data know of these users."""
    check_protocol(protocol, seed)
    return evaluate_candidates(
        ranker, Candidates.ordinary(data, rows, candidates, more), protocol, seed=seed, cutoffs=checked_cutoffs(cutoffs)
    )


def evaluate_held_out(
    ranker: Ranker,
    data: Dataset,
    split: Split,
    part: str,
    protocol: str = "full",
    *,
    seed: int = 0,
    cutoffs: Sequence[int] = (DEFAULT_N,),
    users: int | None = None,
    report: Report | None = None,
) -> Evaluation:
    """A split's validation or test part, among the candidates of candidates.py, with the means of its groups where it has
    some. users: a seeded sample of so many tested users; report: hears how many rows are done, in the protocol full."""
    check_protocol(protocol, seed)
    cutoffs = checked_cutoffs(cutoffs)
    candidates = Candidates.of_part(data, split, part, protocol)
    candidates = candidates if users is None else candidates.of_some_users(users, seed)
    evaluation = evaluate_candidates(ranker, candidates, protocol, seed=seed, cutoffs=cutoffs, report=report)
    groups = split.test_groups if part == "test" else split.validation_groups
    return evaluation if groups is None else evaluation.by_group(split.group_names, groups[candidates.places])


def evaluate_candidates(
    ranker: Ranker,
    candidates: Candidates,
    protocol: str = "full",
    *,
    seed: int = 0,
    cutoffs: Sequence[int] = (DEFAULT_N,),
    report: Report | None = None,
) -> Evaluation:
    """Rank the target of each row among its candidates. report: hears how many rows are done, in the protocol full."""
    if len(candidates.rows) == 0:
        raise DataError("there are no rows to test; the split kept none, or every user has too few.")
    if protocol == "full":
        return _full(ranker, candidates, cutoffs, report)
    drawn, candidates_hash = candidates.sampled(seed)
    items = np.concatenate([candidates.targets[:, None], drawn], axis=1)
    scores = ranker.score_pairs(candidates.users, np.where(items < 0, items[:, :1], items), candidates.rows)
    if (items < 0).any():
        scores = np.where(items < 0, np.float32(-np.inf), scores)
    queries = rank_sampled(scores, protocol, cutoffs)
    users, notes = candidates.users, candidates.notes
    return Evaluation(protocol, _means(queries), queries, candidates.rows, users, candidates_hash, notes=notes)


def rank_sampled(scores: npt.NDArray[np.float32], protocol: str = "sampled", cutoffs: Sequence[int] = (DEFAULT_N,)) -> Queries:
    """The metrics of each query. scores (N, 1 + C): the target's first, then those of its C sampled candidates."""
    ranks = places(scores[:, 0], scores[:, 1:])
    if protocol == "paper":
        ranks = Places(ranks.better, np.zeros_like(ranks.tied))
    return ranking_metrics(ranks, cutoffs)


def protocol_for(data: Dataset, split: Split | None = None) -> str:
    """What choices are made by: sampled, or full where a catalogue is too small to leave every user 99 other items."""
    if split is not None and split.validation_candidates is not None:
        return "sampled"
    most = np.bincount(data.user_numbers[data.positive_rows]).max()
    return "sampled" if len(data.seen_items) - most >= N_SAMPLED else "full"


def check_protocol(protocol: str, seed: int) -> None:
    one_of(protocol, "protocol", PROTOCOLS)
    whole_number(seed, "seed")


def _full(ranker: Ranker, candidates: Candidates, cutoffs: Sequence[int], report: Report | None) -> Evaluation:
    data = candidates.data
    ranks, lists = rank_all(ranker, candidates, max(cutoffs), report)
    queries = ranking_metrics(ranks, cutoffs)
    popularity = np.bincount(data.item_numbers, minlength=len(data.items))
    recommended = RecommendedLists(lists, len(candidates.pools.items), popularity, len(data.seen_users))
    metrics = _means(queries) | list_metrics(recommended, cutoffs)
    return Evaluation("full", metrics, queries, candidates.rows, candidates.users, notes=candidates.notes)


class PositivesByUser:
    """The items of a user's positives, in any part."""

    def __init__(self, data: Dataset, more: Pairs | None = None) -> None:
        positives = Pairs.positives(data, more)
        order = np.argsort(positives.users, kind="stable")
        self._items = positives.items[order]
        self._starts = np.searchsorted(positives.users[order], np.arange(len(data.users) + 1))

    def __call__(self, user: int) -> Ints:
        return self._items[self._starts[user] : self._starts[user + 1]]


def evaluate_labels(
    predicted: npt.NDArray[np.float32],
    labels: npt.NDArray[np.float32],
    limits: tuple[float, float],
    *,
    implicit: bool,
    users: Ints | None = None,
) -> Evaluation:
    """RMSE and MAE of predictions clipped to the training labels' limits; AUC and log-loss for the implicit task.

    users: of each label, for the errors over users.
    """
    if np.isnan(predicted).any():
        raise DataError("a prediction is no number (NaN).")
    clipped = np.clip(predicted.astype(np.float64), *limits)
    truth = labels.astype(np.float64)
    metrics = {"rmse": rmse(clipped, truth), "mae": mae(clipped, truth)}
    if implicit:
        metrics |= {
            "auc": auc(predicted.astype(np.float64), labels > 0),
            "log_loss": log_loss(predicted.astype(np.float64), labels > 0),
        }
    queries = {"squared_error": (clipped - truth) ** 2, "absolute_error": np.abs(clipped - truth)}
    return Evaluation("labels", metrics, queries, users=np.arange(len(labels), dtype=np.int32) if users is None else users)


def _means(queries: Queries) -> dict[str, float]:
    return {name: float(values.mean()) for name, values in queries.items()}
