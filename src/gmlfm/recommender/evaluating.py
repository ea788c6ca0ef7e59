"""Evaluating a fitted run: on its own held-out part, or on other data; and the baseline that stands beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from gmlfm.arguments import one_of
from gmlfm.data.attributes import PARTS
from gmlfm.data.dataset import Dataset, Rows, Side
from gmlfm.data.encoding import Encoded
from gmlfm.data.histories import Histories
from gmlfm.errors import DataError, OptionError
from gmlfm.evaluation.candidates import Candidates, Pairs
from gmlfm.evaluation.full import Report
from gmlfm.evaluation.metrics import checked_cutoffs
from gmlfm.evaluation.newcomer_curve import (
    NewcomerCurve,
    NewcomerRanker,
    checked_counts,
    curve_candidates,
    newcomer_targets,
)
from gmlfm.evaluation.pools import item_pools
from gmlfm.evaluation.protocols import Evaluation, evaluate_candidates, evaluate_held_out, evaluate_labels
from gmlfm.fitting import FittedRun, Refit, labelled
from gmlfm.models.base import ItemSide
from gmlfm.models.registry import model_info
from gmlfm.retrieval import ModelRanker, Ranker

Ints = npt.NDArray[np.int32]
_AT_ONCE: Any = None  # the plan of a model that trains nothing
_MOST_FOLDED = 200  # newcomers of a curve to whom rows of their own are fitted, each some hundredths of a second


def evaluate_part(
    run: FittedRun,
    protocol: str,
    part: str,
    seed: int,
    cutoffs: Sequence[int],
    users: int | None = None,
    report: Report | None = None,
    *,
    baseline: bool = False,
) -> Evaluation:
    """baseline: of popularity, or of the training labels' mean, instead of the run's model; from the same learned rows, on the
    same rows and candidates."""
    rows, groups = _held_out(run, part)
    split = run.split
    if run.settings.task == "topn":
        ranker = _popularity(run) if baseline else run.ranker_of(part)
        return evaluate_held_out(
            ranker, run.data, split, part, protocol, seed=seed, cutoffs=cutoffs, users=users, report=report
        )
    interactions = rows if run.instances is None else run.instances.rows[rows]
    places, notes = _sample(run.data, interactions, users, seed)
    rows = rows[places]
    evaluation = _constant(run, rows) if baseline else evaluate_predictions(run, run.ranker_of(part), run.data, rows)
    evaluation = replace(evaluation, notes=(*(() if run.instances is None else split.notes), *notes))
    return evaluation if groups is None else evaluation.by_group(split.group_names, groups[places])


def evaluate_curve(
    run: FittedRun,
    counts: Sequence[int],
    protocol: str,
    part: str,
    seed: int,
    cutoffs: Sequence[int],
    users: int | None = None,
    report: Report | None = None,
) -> NewcomerCurve:
    """The newcomer's curve of a run, and popularity beside it. report: hears how many targets are ranked, of how many."""
    counts, cutoffs = checked_counts(counts), checked_cutoffs(cutoffs)
    if run.settings.task != "topn":
        raise OptionError(f"the newcomer's curve ranks items, but the run's task is '{run.settings.task}'; train one for topn.")
    if run.refit is Refit.ALL:
        raise OptionError('the run has learned from all rows (refit on all rows), so nobody is new to it; train without "all".')
    data, split = run.data, run.split
    targets = newcomer_targets(data, split, part, run.learned_interactions, max(counts))
    users = _MOST_FOLDED if users is None and run.model.folds_in else users
    candidates = curve_candidates(data, split, part, protocol, targets, users, seed)
    points: dict[int, Evaluation] = {}
    for count in counts:
        ranker = NewcomerRanker(run.model, run.encoded, targets, count)
        points[count] = evaluate_candidates(ranker, candidates, protocol, seed=seed, cutoffs=cutoffs)
        if report is not None:
            report(len(points) * len(candidates.rows), len(counts) * len(candidates.rows))
    return NewcomerCurve(points, evaluate_candidates(_popularity(run), candidates, protocol, seed=seed, cutoffs=cutoffs))


def baseline_name(run: FittedRun) -> str:
    return "popularity" if run.settings.task == "topn" else "training mean"


def _held_out(run: FittedRun, part: str) -> tuple[Rows, npt.NDArray[np.int8] | None]:
    """A part's rows and groups, which the run must not have learned from."""
    one_of(part, "part", ("test", "validation"))
    split = run.split
    rows, groups = (split.test, split.test_groups) if part == "test" else (split.validation, split.validation_groups)
    if len(rows) == 0:
        raise DataError(
            f"the split '{split.name}' has no {part} rows to evaluate on; train with another split, or evaluate other data."
        )
    if np.isin(rows, run.learned_rows).any():
        how = "trained as published" if run.settings.as_published and part == "validation" else run.refit.label
        remedy = 'train without refit="all" (--refit all) and evaluate that run, or evaluate other data'
        if part == "validation" and run.refit is not Refit.ALL:
            remedy = "evaluate its test part"
        raise OptionError(f"the run has learned from its {part} rows ({how}), so they show nothing of its quality; {remedy}.")
    return rows, groups


def _sample(data: Dataset, rows: Rows, n_users: int | None, seed: int) -> tuple[npt.NDArray[np.int64], tuple[str, ...]]:
    """Places of the rows of a sample of users, and what to say of it."""
    if n_users is None:
        return np.arange(len(rows)), ()
    some = Candidates.ordinary(data, rows).of_some_users(n_users, seed)
    return some.places, some.notes


def _popularity(run: FittedRun) -> Ranker:
    """Popularity over what the run has learned from."""
    model = model_info("popularity").cls()
    model.fit(run.inputs, _AT_ONCE)
    return ModelRanker(model, run.encoded)


def _constant(run: FittedRun, rows: Rows) -> Evaluation:
    """The mean of the learned labels for every row."""
    _, _, learned, _ = labelled(run.data, run.instances, run.learned_rows)
    users, _, labels, _ = labelled(run.data, run.instances, rows)
    predicted = np.full(len(labels), learned.mean(dtype=np.float64), np.float32)
    return evaluate_labels(predicted, labels, run.limits, implicit=run.instances is not None, users=users)


def evaluate_predictions(run: FittedRun, ranker: Ranker, data: Dataset, rows: Rows) -> Evaluation:
    """Predicted labels of some rows of the data, or of the run's instances."""
    is_implicit = run.settings.task == "implicit"
    users, items, labels, interactions = labelled(data, run.instances if is_implicit else None, rows)
    predicted = ranker.score_pairs(users, items[:, None], interactions)[:, 0]
    return evaluate_labels(predicted, labels, run.limits, implicit=is_implicit, users=users)


def evaluate_other(
    run: FittedRun, data: Dataset, protocol: str, seed: int, cutoffs: Sequence[int], users: int | None = None
) -> Evaluation:
    """All rows of other data, ranked among the items of the run's interactions and of theirs. Ids that the run knows are used;
    what its users had is not among the candidates. Where items sell once, those that the run has learned from are gone. History
    of a row are the rows before it, in the run's data and in theirs."""
    for part in PARTS:
        fields, other_fields = (
            [(field.name, field.kind) for field in schema.fields_of(part)] for schema in (run.data.schema, data.schema)
        )
        if fields != other_fields:
            raise DataError(f"the run was trained with the {part} fields {fields}, but the other data have {other_fields}.")
    if run.settings.task == "implicit":
        raise OptionError("the task 'implicit' is tested on its own drawn instances; other data have none.")
    user_numbers = run.encoder.user_numbers(data.users.ids.to_list()).astype(np.int32)
    merged = _over_catalogue(run, data)
    encoded = Encoded(
        run.encoder.encode_part("user", data.users.ids, data.users.fields, len(data.users)),
        run.encoder.encode_part("context", None, data.context, data.n_interactions),
        run.encoder.encode_part("item", merged.items.ids, merged.items.fields, len(merged.items)),
    )
    numbers = np.where(np.arange(len(merged.items)) < len(run.data.items), np.arange(len(merged.items)), -1)
    histories = Histories.of_other(run.data, merged, user_numbers) if run.model.reads_history else None
    model = run.model.over(ItemSide(numbers.astype(np.int32), encoded.item))
    ranker = ModelRanker(model, encoded, user_numbers, histories)
    if run.settings.task == "rating":
        rows = data.rows_for("rating")
        places, notes = _sample(data, rows, users, seed)
        return replace(evaluate_predictions(run, ranker, merged, rows[places]), notes=notes)
    candidates = _candidates_of_other(run, merged, user_numbers)
    candidates = candidates if users is None else candidates.of_some_users(users, seed)
    return evaluate_candidates(ranker, candidates, protocol, seed=seed, cutoffs=checked_cutoffs(cutoffs))


def _over_catalogue(run: FittedRun, data: Dataset) -> Dataset:
    """The other data with the run's items, by the run's numbers and as it knows them, and after those the items that it does
    not know."""
    known, side, other = run.encoder.item_numbers(data.items.ids.to_list()), run.data.items, data.items
    is_new = known < 0
    numbers = np.where(is_new, len(side) + np.cumsum(is_new) - 1, known).astype(np.int32)
    fields = side.fields
    if fields.width:
        fields = pl.concat([fields, other.fields.filter(is_new).select(fields.columns).cast(fields.schema)])
    ids = pl.concat([side.ids, other.ids.filter(is_new).cast(side.ids.dtype).alias(side.ids.name)])
    items = Side(ids, side.id_type, fields, None, len(ids))
    interactions = data.interactions.with_columns(pl.Series("item", numbers[data.item_numbers]))
    history = data.history_rows.with_columns(pl.Series("item", numbers[data.history_rows["item"].to_numpy()]))
    return replace(data, items=items, interactions=interactions, history_rows=history)


def _candidates_of_other(run: FittedRun, merged: Dataset, user_numbers: Ints) -> Candidates:
    """merged: the other data over the run's items; user_numbers: the run's number of each of their users, -1 for none."""
    n_items, n_known = len(merged.items), len(run.data.items)
    is_seen = np.zeros(n_items, bool)
    is_seen[run.data.seen_items], is_seen[merged.seen_items] = True, True
    pools = item_pools(is_seen)
    if run.data.sells_once:
        # A row that both have counts once.
        others = np.where(user_numbers < 0, len(run.data.users) + np.arange(len(user_numbers)), user_numbers)
        users = np.concatenate([run.data.user_numbers, others[merged.user_numbers]])
        pairs = np.unique(users.astype(np.int64) * n_items + np.concatenate([run.data.item_numbers, merged.item_numbers]))
        is_learned = np.zeros(n_items, bool)
        is_learned[:n_known][run.data.item_numbers[run.learned_interactions]] = True
        single_unit = np.bincount(pairs % n_items, minlength=n_items) <= 1
        tested = merged.item_numbers[merged.positive_rows]
        is_learned[tested] = False  # what is tested was to be had
        pools = item_pools(is_seen, single_unit=single_unit, has_row_before=is_learned)
    return Candidates.of_rows(merged, merged.positive_rows, pools, _positives_of_run(run.data, user_numbers))


def _positives_of_run(data: Dataset, users: Ints) -> Pairs:
    """What the run's data have as positives of the other data's users, in those users' numbers; users: the run's number of
    each."""
    number_of = np.full(len(data.users), -1, np.int32)
    number_of[users[users >= 0]] = np.flatnonzero(users >= 0)
    positives = data.positive_rows
    owners = number_of[data.user_numbers[positives]]
    return Pairs(owners[owners >= 0], data.item_numbers[positives][owners >= 0])
