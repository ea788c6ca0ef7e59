"""How much each field matters, on validation: by shuffling it among its owners, and by training without it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import numpy as np
import polars as pl

from gmlfm.data.dataset import Dataset, Side
from gmlfm.data.schema import Schema, SideSchema
from gmlfm.errors import DataError, OptionError
from gmlfm.evaluation.metrics import default_metric
from gmlfm.evaluation.protocols import evaluate_held_out, protocol_for
from gmlfm.fitting import FittedRun, fit
from gmlfm.models.base import ItemSide
from gmlfm.recommender.evaluating import evaluate_predictions
from gmlfm.retrieval import ModelRanker, Ranker

Part = Literal["user", "item"]


def field_importance(run: FittedRun, *, retrain: bool, report: Callable[[str], None], seed: int = 0) -> pl.DataFrame:
    """part, field, and how much worse validation gets: NDCG lost, or RMSE gained; below 0 a field harms.

    Shuffling tells how much the trained model leans on a field; training without it, whether it was needed. A shuffled field
    of the items is shuffled in the users' histories as well, by which it matters, too.
    """
    if retrain and "prepared" in run.split.options:
        raise OptionError(
            "a prepared folder has its fields encoded together, so no run of it can be trained again without one; leave "
            "--retrain out, or train on the tables themselves (gmlfm train DATA --out RUN) and ask about that run."
        )
    if retrain and run.split.name == "files":
        raise OptionError(
            "a run keeps the rows of a split from files, not the files, so it cannot be trained again without a field; leave "
            "--retrain out."
        )
    if not run.model.inputs.attributes:
        raise OptionError(f"'{run.settings.model}' does not use attributes, so none matters to it.")
    if len(run.split.validation) == 0:
        raise DataError(f"the split '{run.split.name}' has no validation rows to measure on.")
    fields: list[tuple[Part, str]] = [
        (part, field.name) for part in ("user", "item") for field in run.data.schema.fields_of(part)
    ]
    if not fields:
        raise DataError("the data have no fields beside the ids.")
    metric, sign = (default_metric("ndcg"), 1.0) if run.settings.task == "topn" else ("rmse", -1.0)
    with_all_fields = _validated(run, run.data, run.ranker_of("validation"))[metric]
    rows = []
    for number, (part, name) in enumerate(fields, start=1):
        report(f"shuffling {part}.{name}, field {number} of {len(fields)}")
        data = _with_side(run.data, part, _shuffled(_side(run.data, part), name, seed))
        lost = sign * (with_all_fields - _validated(run, data, _ranker_over(run, data))[metric])
        without = None
        if retrain:
            report(f"training without {part}.{name}, field {number} of {len(fields)}")
            other = fit(_dropped(run.data, part, name), run.settings, split=run.split.name, split_options=_options(run))
            if other.report.interrupted:
                raise KeyboardInterrupt
            without = sign * (run.validation[metric] - other.validation[metric])
        rows.append((part, name, lost, without))
    schema = {"part": pl.String, "field": pl.String, "shuffled": pl.Float64, "without": pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row").sort("shuffled", descending=True)


def _ranker_over(run: FittedRun, data: Dataset) -> Ranker:
    encoded = run.encoder.encode(data)
    items = ItemSide(np.arange(len(encoded.item), dtype=np.int32), encoded.item)
    histories = run.histories_of("validation")
    return ModelRanker(run.model.over(items), encoded, histories=run.histories if histories is None else histories)


def _validated(run: FittedRun, data: Dataset, ranker: Ranker) -> dict[str, float]:
    rows = run.split.validation
    if run.settings.task == "topn":
        return evaluate_held_out(ranker, data, run.split, "validation", protocol_for(data, run.split)).metrics
    return evaluate_predictions(run, ranker, data, rows).metrics


def _options(run: FittedRun) -> dict[str, object]:
    return {name: value for name, value in run.split.options.items() if name not in ("task", "negatives", "instances")}


def _side(data: Dataset, part: Part) -> Side:
    return data.users if part == "user" else data.items


def _with_side(data: Dataset, part: Part, side: Side) -> Dataset:
    return replace(data, users=side) if part == "user" else replace(data, items=side)


def _shuffled(side: Side, name: str, seed: int) -> Side:
    order = np.random.default_rng([seed, 43]).permutation(len(side))
    return replace(side, fields=side.fields.with_columns(side.fields[name].gather(order).alias(name)))


def _dropped(data: Dataset, part: Part, name: str) -> Dataset:
    side = _side(data, part)
    spec = data.schema.users if part == "user" else data.schema.items
    assert spec is not None
    less: SideSchema = replace(spec, fields=tuple(field for field in spec.fields if field.name != name))
    schema: Schema = replace(data.schema, users=less) if part == "user" else replace(data.schema, items=less)
    return replace(_with_side(data, part, replace(side, fields=side.fields.drop(name))), schema=schema)
