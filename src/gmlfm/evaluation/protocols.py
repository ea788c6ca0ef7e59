"""Protocols: against which candidates a tested row is ranked. One query is one tested row; its target is the row's item.

full      every item of the interactions (or of the catalogue) that is none of the user's positives in any part
sampled   99 of those, seeded; the lists have a hash and are the same for all models
paper     the same 99, but ties count as hits, as in the released code: for comparison with the published figures only
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from gmlfm.data.dataset import Dataset, Rows
from gmlfm.data.splits import Split
from gmlfm.errors import DataError, OptionError, did_you_mean
from gmlfm.evaluation.candidates import N_SAMPLED, Pairs, evaluation_candidates
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
from gmlfm.retrieval import Ranker, best_items
from gmlfm.retrieval.ranking import DEFAULT_N

PROTOCOLS = ("full", "sampled", "paper")
Ints = npt.NDArray[np.int32]
Queries = dict[str, npt.NDArray[np.float64]]
_SCORES_PER_BLOCK = 8_000_000


@dataclass(frozen=True)
class Evaluation:
    """Means, and the value of each query, so that two runs can be compared query by query."""

    protocol: str
    metrics: dict[str, float]
    queries: Queries = field(default_factory=dict)
    rows: Rows = field(default_factory=lambda: np.empty(0, np.int64))
    candidates_hash: str = ""
    groups: dict[str, dict[str, float]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

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
    """Rank the target of each tested row among its candidates. more: positives that other data know of these users."""
    check_protocol(protocol, seed)
    cutoffs = checked_cutoffs(cutoffs)
    if len(rows) == 0:
        raise DataError("there are no rows to test; the split kept none, or every user has too few.")
    if protocol == "full":
        return _full(ranker, data, rows, cutoffs, data.seen_items if candidates is None else candidates, more)
    drawn, candidates_hash = evaluation_candidates(data, rows, N_SAMPLED, seed, candidates, more)
    items = np.concatenate([data.item_numbers[rows][:, None], drawn], axis=1)
    queries = rank_sampled(ranker.score_pairs(data.user_numbers[rows], items, rows), protocol, cutoffs)
    return Evaluation(protocol, _means(queries), queries, rows, candidates_hash)


def rank_sampled(scores: npt.NDArray[np.float32], protocol: str = "sampled", cutoffs: Sequence[int] = (DEFAULT_N,)) -> Queries:
    """The metrics of each query. scores (N, 1 + C): the target's first, then those of its C sampled candidates."""
    ranks = places(scores[:, 0], scores[:, 1:])
    if protocol == "paper":
        ranks = Places(ranks.better, np.zeros_like(ranks.tied))
    return ranking_metrics(ranks, cutoffs)


def evaluate_held_out(
    ranker: Ranker,
    data: Dataset,
    split: Split,
    part: str,
    protocol: str = "full",
    *,
    seed: int = 0,
    cutoffs: Sequence[int] = (DEFAULT_N,),
) -> Evaluation:
    """A split's validation or test part, with the means of its groups where it has some.

    Of the split `newcomers`, an item that training never met is ranked among such items: beside items with a row of their own
    it would be recognised by that alone. Where a user leaves fewer than 99 such items, all candidates are taken, and a note
    says so.
    """
    rows, groups = (split.test, split.test_groups) if part == "test" else (split.validation, split.validation_groups)
    if groups is None:
        return evaluate_ranking(ranker, data, rows, protocol, seed=seed, cutoffs=cutoffs)
    is_new = np.array([name.endswith("-new") for name in split.group_names])[groups]
    new_items = np.setdiff1d(data.seen_items, data.item_numbers[split.train]).astype(np.int32)
    if not is_new.any() or not _enough(data, rows[is_new], new_items):
        evaluation = evaluate_ranking(ranker, data, rows, protocol, seed=seed, cutoffs=cutoffs)
        few = f"fewer than {N_SAMPLED} of {len(new_items):,} new ones are left to some user"
        note = f"new items are ranked among all items: {few}."
        return replace(evaluation.by_group(split.group_names, groups), notes=(note,) if is_new.any() else ())
    queries: Queries = {}
    hashes = []
    for is_chosen, candidates in ((~is_new, None), (is_new, new_items)):
        if is_chosen.any():
            evaluation = evaluate_ranking(
                ranker, data, rows[is_chosen], protocol, seed=seed, cutoffs=cutoffs, candidates=candidates
            )
            hashes.append(evaluation.candidates_hash)
            for name, values in evaluation.queries.items():
                queries.setdefault(name, np.empty(len(rows)))[is_chosen] = values
    return Evaluation(protocol, _means(queries), queries, rows, "-".join(hashes)).by_group(split.group_names, groups)


def _enough(data: Dataset, rows: Rows, candidates: Ints) -> bool:
    """Whether every tested user leaves 99 of these candidates."""
    is_candidate = np.isin(data.item_numbers[data.positive_rows], candidates)
    n_excluded = np.bincount(data.user_numbers[data.positive_rows[is_candidate]], minlength=len(data.users))
    return bool(len(candidates) - n_excluded[data.user_numbers[rows]].max(initial=0) >= N_SAMPLED)


def protocol_for(data: Dataset) -> str:
    """What choices are made by: sampled, or full where a catalogue is too small to leave every user 99 other items."""
    most = np.bincount(data.user_numbers[data.positive_rows]).max()
    return "sampled" if len(data.seen_items) - most >= N_SAMPLED else "full"


def check_protocol(protocol: str, seed: int) -> None:
    if protocol not in PROTOCOLS:
        raise OptionError(f"protocol is '{protocol}'{did_you_mean(protocol, PROTOCOLS)}")
    if seed < 0:
        raise OptionError(f"seed is {seed}; expected 0 or more.")


def _full(
    ranker: Ranker, data: Dataset, rows: Rows, cutoffs: Sequence[int], candidates: Ints, more: Pairs | None
) -> Evaluation:
    users, targets = data.user_numbers[rows], data.item_numbers[rows]
    positives = PositivesByUser(data, more)
    better, tied = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
    lists = np.full((len(rows), min(max(cutoffs), len(candidates))), -1, np.int32)
    column_of = np.full(len(data.items), -1)
    column_of[candidates] = np.arange(len(candidates))
    if (column_of[targets] < 0).any():
        raise DataError("a tested item is not among the candidates.")
    rows_per_block = max(1, _SCORES_PER_BLOCK // len(candidates))
    for start in range(0, len(rows), rows_per_block):
        block = slice(start, start + rows_per_block)
        scores = ranker.score_all(users[block], candidates, rows[block])
        target_cells = np.arange(len(scores)), column_of[targets[block]]
        target_scores = scores[target_cells].copy()
        for row, user in enumerate(users[block]):
            columns = column_of[positives(int(user))]
            scores[row, columns[columns >= 0]] = -np.inf
        ranks = places(target_scores, scores)
        better[block], tied[block] = ranks.better, ranks.tied
        scores[target_cells] = target_scores
        lists[block] = best_items(scores, candidates, max(cutoffs)).items
    queries = ranking_metrics(Places(better, tied), cutoffs)
    popularity = np.bincount(data.item_numbers, minlength=len(data.items))
    recommended = RecommendedLists(lists, len(candidates), popularity, len(data.seen_users))
    return Evaluation("full", _means(queries) | list_metrics(recommended, cutoffs), queries, rows)


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
    predicted: npt.NDArray[np.float32], labels: npt.NDArray[np.float32], limits: tuple[float, float], *, implicit: bool
) -> Evaluation:
    """RMSE and MAE of predictions clipped to the training labels' limits; AUC and log-loss for the implicit task."""
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
    return Evaluation("labels", metrics, {"squared_error": (clipped - truth) ** 2, "absolute_error": np.abs(clipped - truth)})


def _means(queries: Queries) -> dict[str, float]:
    return {name: float(values.mean()) for name, values in queries.items()}
