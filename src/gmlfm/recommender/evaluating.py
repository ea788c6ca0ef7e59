"""Evaluating a fitted run: on its own held-out part, or on other data."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gmlfm.data.attributes import PARTS
from gmlfm.data.dataset import Dataset, Rows
from gmlfm.errors import DataError, OptionError
from gmlfm.evaluation.protocols import Evaluation, evaluate_held_out, evaluate_labels, evaluate_ranking
from gmlfm.fitting import FittedRun, labelled
from gmlfm.retrieval import Renumbered, Scorer, Scores
from gmlfm.training.sampling.negatives import Pairs

Ints = npt.NDArray[np.int32]


def evaluate_part(fitted: FittedRun, protocol: str, part: str, seed: int) -> Evaluation:
    if part not in ("test", "validation"):
        raise OptionError(f"part is '{part}'; expected test or validation.")
    split = fitted.split
    rows, groups = (split.test, split.test_groups) if part == "test" else (split.validation, split.validation_groups)
    if len(rows) == 0:
        raise DataError(f"the split '{split.name}' has no {part} rows to evaluate on.")
    if fitted.settings.task == "topn":
        return evaluate_held_out(fitted.scores, fitted.data, split, part, protocol, seed=seed)
    found = _labels(fitted, fitted.scores, labelled(fitted.data, fitted.instances, rows))
    return found if groups is None else found.by_group(split.group_names, groups)


def evaluate_other(fitted: FittedRun, data: Dataset, protocol: str, seed: int) -> Evaluation:
    """Ids that the run knows are used; what its users had in training is not among the candidates."""
    for part in PARTS:
        ours, theirs = (
            [(one.name, one.kind) for one in schema.fields_of(part)] for schema in (fitted.data.schema, data.schema)
        )
        if ours != theirs:
            raise DataError(f"the run was trained with the {part} fields {ours}, but the other data have {theirs}.")
    users = fitted.encoder.user_numbers(data.users.ids.to_list()).astype(np.int32)
    items = fitted.encoder.item_numbers(data.items.ids.to_list()).astype(np.int32)
    scores: Scores = Renumbered(fitted.scores, users, items)
    if isinstance(fitted.scores, Scorer):
        scores = fitted.scores.over(fitted.encoder.encode(data))
    rows = data.rows_for(fitted.settings.task)  # type: ignore[arg-type]
    if fitted.settings.task == "rating":
        return _labels(fitted, scores, labelled(data, None, rows))
    if fitted.settings.task != "topn":
        raise OptionError("the task 'implicit' is tested on its own drawn instances; other data have none.")
    known = np.zeros(len(fitted.data.items), bool)
    known[fitted.data.seen_items] = True
    seen = (items >= 0) & known[np.maximum(items, 0)]
    seen[data.seen_items] = True
    candidates = np.flatnonzero(seen).astype(np.int32)
    more = _had(fitted.data, users, items)
    return evaluate_ranking(scores, data, rows, protocol, seed=seed, candidates=candidates, more=more)


def _labels(fitted: FittedRun, scores: Scores, instances: tuple[Ints, Ints, npt.NDArray[np.float32], Rows]) -> Evaluation:
    users, items, labels, interactions = instances
    predicted = scores.score_pairs(users, items[:, None], interactions)[:, 0]
    return evaluate_labels(predicted, labels, fitted.limits, implicit=fitted.settings.task == "implicit")


def _had(data: Dataset, users: Ints, items: Ints) -> Pairs:
    """What the run's data know as positives, in the other data's numbers; users and items map those to the run's."""
    there = []
    for ours, size in ((users, len(data.users)), (items, len(data.items))):
        back = np.full(size, -1, np.int32)
        back[ours[ours >= 0]] = np.flatnonzero(ours >= 0)
        there.append(back)
    mapped = Pairs(there[0][data.user_numbers[data.positive_rows]], there[1][data.item_numbers[data.positive_rows]])
    both = (mapped.users >= 0) & (mapped.items >= 0)
    return Pairs(mapped.users[both], mapped.items[both])
