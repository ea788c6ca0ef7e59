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
from gmlfm.evaluation.metrics import Places, auc, coverage, log_loss, mae, novelty, places, ranking_metrics, rmse
from gmlfm.retrieval import Scores, best_items
from gmlfm.training.sampling.negatives import Pairs, evaluation_candidates

PROTOCOLS = ("full", "sampled", "paper")
N_SAMPLED = 99
Ints = npt.NDArray[np.int32]
_SCORES_PER_BLOCK = 8_000_000


@dataclass(frozen=True)
class Evaluation:
    """Means, and the value of each query, so that two runs can be compared query by query."""

    protocol: str
    metrics: dict[str, float]
    queries: dict[str, npt.NDArray[np.float64]] = field(default_factory=dict)
    rows: Rows = field(default_factory=lambda: np.empty(0, np.int64))
    candidates_hash: str = ""
    groups: dict[str, dict[str, float]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def by_group(self, names: Sequence[str], group_of: npt.NDArray[np.int8]) -> Evaluation:
        """With the means of each group of queries (newcomers apart from the known), and how many they are."""
        found = {}
        for at, name in enumerate(names):
            inside = group_of == at
            if inside.any():
                means = {key: float(values[inside].mean()) for key, values in self.queries.items()}
                if "squared_error" in means:
                    means["rmse"], means["mae"] = means.pop("squared_error") ** 0.5, means.pop("absolute_error")
                found[name] = {"rows": float(inside.sum()), **means}
        return replace(self, groups=found)

    def balanced(self) -> dict[str, float]:
        """The metrics with every group counting alike, however few its queries are: for choosing."""
        if not self.groups:
            return self.metrics
        return {name: float(np.mean([one[name] for one in self.groups.values()])) for name in self.queries}


def evaluate_ranking(
    scores: Scores,
    data: Dataset,
    rows: Rows,
    protocol: str = "full",
    *,
    seed: int = 0,
    n: int = 10,
    candidates: Ints | None = None,
    more: Pairs | None = None,
) -> Evaluation:
    """Rank the target of each tested row among its candidates. more: positives that other data know of these users."""
    check_protocol(protocol, seed)
    if len(rows) == 0:
        raise DataError("there are no rows to test; the split kept none, or every user has too few.")
    if protocol == "full":
        return _full(scores, data, rows, n, data.seen_items if candidates is None else candidates, more)
    drawn, name = evaluation_candidates(data, rows, N_SAMPLED, seed, candidates, more)
    listed = np.concatenate([data.item_numbers[rows][:, None], drawn], axis=1)
    found = scores.score_pairs(data.user_numbers[rows], listed, rows)
    where = places(found[:, 0], found[:, 1:])
    if protocol == "paper":
        where = Places(where.better, np.zeros_like(where.tied))
    queries = ranking_metrics(where, n)
    return Evaluation(protocol, _means(queries), queries, rows, name)


def evaluate_held_out(
    scores: Scores, data: Dataset, split: Split, part: str, protocol: str = "full", *, seed: int = 0
) -> Evaluation:
    """A split's validation or test part, with the means of its groups where it has some.

    Of the split `newcomers`, an item that training never met is ranked among such items: beside items with a row of their own
    it would be told by that alone. Where a user leaves fewer than 99 such items, all candidates are taken, and a note says so.
    """
    rows, groups = (split.test, split.test_groups) if part == "test" else (split.validation, split.validation_groups)
    if groups is None:
        return evaluate_ranking(scores, data, rows, protocol, seed=seed)
    new = np.array([name.endswith("-new") for name in split.group_names])[groups]
    unmet = np.setdiff1d(data.seen_items, data.item_numbers[split.train]).astype(np.int32)
    if not new.any() or not _enough(data, rows[new], unmet):
        found = evaluate_ranking(scores, data, rows, protocol, seed=seed).by_group(split.group_names, groups)
        note = f"new items are ranked among all items: fewer than {N_SAMPLED} of {len(unmet):,} new ones are left to some user."
        return replace(found, notes=(note,)) if new.any() else found
    met, others = (
        evaluate_ranking(scores, data, rows[chosen], protocol, seed=seed, candidates=among) if chosen.any() else None
        for chosen, among in ((~new, None), (new, unmet))
    )
    assert others is not None
    queries = {name: np.empty(len(rows)) for name in others.queries}
    for chosen, one in ((~new, met), (new, others)):
        if one is not None:
            for name, values in one.queries.items():
                queries[name][chosen] = values
    name = "-".join(one.candidates_hash for one in (met, others) if one is not None)
    return Evaluation(protocol, _means(queries), queries, rows, name).by_group(split.group_names, groups)


def _enough(data: Dataset, rows: Rows, candidates: Ints) -> bool:
    """Whether every tested user leaves 99 of these candidates."""
    among = np.isin(data.item_numbers[data.positive_rows], candidates)
    had = np.bincount(data.user_numbers[data.positive_rows[among]], minlength=len(data.users))
    return bool(len(candidates) - had[data.user_numbers[rows]].max(initial=0) >= N_SAMPLED)


def protocol_for(data: Dataset) -> str:
    """What choices are made by: sampled, or full where a catalogue is too small to leave every user 99 other items."""
    most = np.bincount(data.user_numbers[data.positive_rows]).max()
    return "sampled" if len(data.seen_items) - most >= N_SAMPLED else "full"


def check_protocol(protocol: str, seed: int) -> None:
    if protocol not in PROTOCOLS:
        raise OptionError(f"protocol is '{protocol}'{did_you_mean(protocol, PROTOCOLS)}")
    if seed < 0:
        raise OptionError(f"seed is {seed}; expected 0 or more.")


def _full(scores: Scores, data: Dataset, rows: Rows, n: int, candidates: Ints, more: Pairs | None) -> Evaluation:
    users, targets = data.user_numbers[rows], data.item_numbers[rows]
    positives = PositivesByUser(data, more)
    better, tied = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
    best = np.full((len(rows), min(n, len(candidates))), -1, np.int32)
    place = np.full(len(data.items), -1)
    place[candidates] = np.arange(len(candidates))
    if (place[targets] < 0).any():
        raise DataError("a tested item is not among the candidates.")
    step = max(1, _SCORES_PER_BLOCK // len(candidates))
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        found = scores.score_all(users[part], candidates, rows[part])
        at = np.arange(len(found))
        target = found[at, place[targets[part]]].copy()
        for row, user in enumerate(users[part]):
            known = place[positives(int(user))]
            found[row, known[known >= 0]] = -np.inf
        where = places(target, found)
        better[part], tied[part] = where.better, where.tied
        found[at, place[targets[part]]] = target
        best[part] = best_items(found, candidates, n, ()).items
    queries = ranking_metrics(Places(better, tied), n)
    popularity = np.bincount(data.item_numbers, minlength=len(data.items))
    extra = {f"coverage@{n}": coverage(best, len(candidates)), f"novelty@{n}": novelty(best, popularity, len(data.seen_users))}
    return Evaluation("full", {**_means(queries), **extra}, queries, rows)


class PositivesByUser:
    """The items of a user's positives, in any part."""

    def __init__(self, data: Dataset, more: Pairs | None = None) -> None:
        had = Pairs.positives(data, more)
        order = np.argsort(had.users, kind="stable")
        self._items = had.items[order]
        self._starts = np.searchsorted(had.users[order], np.arange(len(data.users) + 1))

    def __call__(self, user: int) -> Ints:
        return self._items[self._starts[user] : self._starts[user + 1]]


def evaluate_labels(
    predicted: npt.NDArray[np.float32], labels: npt.NDArray[np.float32], limits: tuple[float, float], *, implicit: bool
) -> Evaluation:
    """RMSE and MAE of predictions kept within the training labels' limits; AUC and log-loss for the implicit task."""
    if np.isnan(predicted).any():
        raise DataError("a prediction is no number (NaN).")
    kept = np.clip(predicted.astype(np.float64), *limits)
    truth = labels.astype(np.float64)
    metrics = {"rmse": rmse(kept, truth), "mae": mae(kept, truth)}
    if implicit:
        metrics |= {
            "auc": auc(predicted.astype(np.float64), labels > 0),
            "log_loss": log_loss(predicted.astype(np.float64), labels > 0),
        }
    return Evaluation("labels", metrics, {"squared_error": (kept - truth) ** 2, "absolute_error": np.abs(kept - truth)})


def _means(queries: dict[str, npt.NDArray[np.float64]]) -> dict[str, float]:
    return {name: float(values.mean()) for name, values in queries.items()}
