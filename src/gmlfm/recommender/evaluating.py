"""Evaluating a fitted run: on its own held-out part, or on other data."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from gmlfm.data.attributes import PARTS
from gmlfm.data.dataset import Dataset, Rows
from gmlfm.errors import DataError, OptionError
from gmlfm.evaluation.candidates import Pairs
from gmlfm.evaluation.protocols import Evaluation, evaluate_held_out, evaluate_labels, evaluate_ranking
from gmlfm.fitting import FittedRun, labelled
from gmlfm.models.base import ItemSide
from gmlfm.retrieval import ModelRanker, Ranker

Ints = npt.NDArray[np.int32]


def evaluate_part(run: FittedRun, protocol: str, part: str, seed: int, cutoffs: Sequence[int]) -> Evaluation:
    if part not in ("test", "validation"):
        raise OptionError(f"part is '{part}'; expected test or validation.")
    split = run.split
    rows, groups = (split.test, split.test_groups) if part == "test" else (split.validation, split.validation_groups)
    if len(rows) == 0:
        raise DataError(f"the split '{split.name}' has no {part} rows to evaluate on.")
    if run.settings.task == "topn":
        return evaluate_held_out(run.ranker, run.data, split, part, protocol, seed=seed, cutoffs=cutoffs)
    evaluation = evaluate_predictions(run, run.ranker, run.data, rows)
    return evaluation if groups is None else evaluation.by_group(split.group_names, groups)


def evaluate_other(run: FittedRun, data: Dataset, protocol: str, seed: int, cutoffs: Sequence[int]) -> Evaluation:
    """Ids that the run knows are used; what its users had in training is not among the candidates."""
    for part in PARTS:
        fields, other_fields = (
            [(field.name, field.kind) for field in schema.fields_of(part)] for schema in (run.data.schema, data.schema)
        )
        if fields != other_fields:
            raise DataError(f"the run was trained with the {part} fields {fields}, but the other data have {other_fields}.")
    users = run.encoder.user_numbers(data.users.ids.to_list()).astype(np.int32)
    items = run.encoder.item_numbers(data.items.ids.to_list()).astype(np.int32)
    encoded = run.encoder.encode(data)
    ranker = ModelRanker(run.model.over(ItemSide(items, encoded.item)), encoded, users)
    rows = data.rows_for(run.settings.task)  # type: ignore[arg-type]
    if run.settings.task == "rating":
        return evaluate_predictions(run, ranker, data, rows)
    if run.settings.task != "topn":
        raise OptionError("the task 'implicit' is tested on its own drawn instances; other data have none.")
    is_seen_in_run = np.zeros(len(run.data.items), bool)
    is_seen_in_run[run.data.seen_items] = True
    is_candidate = (items >= 0) & is_seen_in_run[np.maximum(items, 0)]
    is_candidate[data.seen_items] = True
    candidates = np.flatnonzero(is_candidate).astype(np.int32)
    more = _positives_of_run(run.data, users, items)
    return evaluate_ranking(ranker, data, rows, protocol, seed=seed, cutoffs=cutoffs, candidates=candidates, more=more)


def evaluate_predictions(run: FittedRun, ranker: Ranker, data: Dataset, rows: Rows) -> Evaluation:
    """Predicted labels of some rows of the data, or of the run's instances."""
    is_implicit = run.settings.task == "implicit"
    users, items, labels, interactions = labelled(data, run.instances if is_implicit else None, rows)
    predicted = ranker.score_pairs(users, items[:, None], interactions)[:, 0]
    return evaluate_labels(predicted, labels, run.limits, implicit=is_implicit)


def _positives_of_run(data: Dataset, users: Ints, items: Ints) -> Pairs:
    """What the run's data have as positives, in the other data's numbers; users and items map those to the run's."""
    numbers = []
    for in_run, size in ((users, len(data.users)), (items, len(data.items))):
        inverse = np.full(size, -1, np.int32)
        inverse[in_run[in_run >= 0]] = np.flatnonzero(in_run >= 0)
        numbers.append(inverse)
    positives = data.positive_rows
    mapped = Pairs(numbers[0][data.user_numbers[positives]], numbers[1][data.item_numbers[positives]])
    is_known = (mapped.users >= 0) & (mapped.items >= 0)
    return Pairs(mapped.users[is_known], mapped.items[is_known])
