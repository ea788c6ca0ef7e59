"""What each field is worth, on validation: by shuffling it among its owners, and by training without it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import numpy as np
import polars as pl

from gmlfm.data.dataset import Dataset, Side
from gmlfm.data.schema import Schema, SideSchema
from gmlfm.errors import DataError, OptionError
from gmlfm.evaluation.protocols import evaluate_labels, evaluate_ranking, protocol_for
from gmlfm.fitting import FittedRun, fit, labelled
from gmlfm.models.registry import model_info
from gmlfm.retrieval import Scorer, Scores

Part = Literal["user", "item"]


def field_importance(fitted: FittedRun, *, retrain: bool, tell: Callable[[str], None], seed: int = 0) -> pl.DataFrame:
    """part, field, and how much worse validation gets: NDCG@10 lost, or RMSE gained; below 0 a field harms.

    Shuffling asks how much the trained model leans on a field; training without it, whether it was needed.
    """
    if retrain and "prepared" in fitted.split.options:
        raise OptionError(
            "a prepared folder has its fields encoded together, so no run of it can be trained again without one; leave "
            "--retrain out, or train on the tables themselves (gmlfm train DATA --out RUN) and ask about that run."
        )
    if not isinstance(fitted.scores, Scorer) or not model_info(fitted.settings.model).uses_attributes:
        raise OptionError(f"'{fitted.settings.model}' does not use attributes, so none is worth anything to it.")
    if len(fitted.split.validation) == 0:
        raise DataError(f"the split '{fitted.split.name}' has no validation rows to measure on.")
    fields: list[tuple[Part, str]] = [
        (part, one.name) for part in ("user", "item") for one in fitted.data.schema.fields_of(part)
    ]
    if not fields:
        raise DataError("the data have no fields beside the ids.")
    metric, sign = ("ndcg@10", 1.0) if fitted.settings.task == "topn" else ("rmse", -1.0)
    whole = _measured(fitted, fitted.data, fitted.scores)[metric]
    rows = []
    for part, name in fields:
        tell(f"shuffling {part}.{name}")
        data = _with_side(fitted.data, part, _shuffled(_side(fitted.data, part), name, seed))
        lost = sign * (whole - _measured(fitted, data, fitted.scores.over(fitted.encoder.encode(data)))[metric])
        without = None
        if retrain:
            tell(f"training without {part}.{name}")
            again = fit(
                _dropped(fitted.data, part, name), fitted.settings, split=fitted.split.name, split_options=_options(fitted)
            )
            without = sign * (fitted.validation[metric] - again.validation[metric])
        rows.append((part, name, lost, without))
    schema = {"part": pl.String, "field": pl.String, "shuffled": pl.Float64, "without": pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row").sort("shuffled", descending=True)


def _measured(fitted: FittedRun, data: Dataset, scores: Scores) -> dict[str, float]:
    rows = fitted.split.validation
    if fitted.settings.task == "topn":
        return evaluate_ranking(scores, data, rows, protocol_for(data)).metrics
    users, items, labels, interactions = labelled(data, fitted.instances, rows)
    predicted = scores.score_pairs(users, items[:, None], interactions)[:, 0]
    return evaluate_labels(predicted, labels, fitted.limits, implicit=fitted.instances is not None).metrics


def _options(fitted: FittedRun) -> dict[str, object]:
    return {name: value for name, value in fitted.split.options.items() if name not in ("task", "negatives", "instances")}


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
    less: SideSchema = replace(spec, fields=tuple(one for one in spec.fields if one.name != name))
    schema: Schema = replace(data.schema, users=less) if part == "user" else replace(data.schema, items=less)
    return replace(_with_side(data, part, replace(side, fields=side.fields.drop(name))), schema=schema)
