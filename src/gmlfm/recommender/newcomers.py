"""Scores and reasons for somebody never seen, from what is known of them and from what they chose."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from gmlfm.arguments import ids_of
from gmlfm.fitting import FittedRun
from gmlfm.models.base import UserSide
from gmlfm.recommender.reasons import explain_item, item_number
from gmlfm.recommender.user_side import newcomer
from gmlfm.retrieval.explaining import Explanation

Given = Mapping[str, Any] | None


def score_for_newcomer(
    run: FittedRun, attributes: Given, history: Sequence[Any], items: Sequence[Any], context: Given
) -> pl.DataFrame:
    """item, score."""
    numbers = [item_number(run, item) for item in ids_of(items, "items")]
    distinct, places = np.unique(np.array(numbers, np.int32), return_inverse=True)
    scores = run.model.score_all(_asked(run, attributes, history, context), distinct)[0][places]
    return pl.DataFrame([run.encoder.ids_of_items(distinct[places]), pl.Series("score", scores.astype(np.float64))])


def explain_for_newcomer(run: FittedRun, attributes: Given, history: Sequence[Any], item: Any, context: Given) -> Explanation:
    return explain_item(run, _asked(run, attributes, history, context), item_number(run, item))


def _asked(run: FittedRun, attributes: Given, history: Sequence[Any], context: Given) -> UserSide:
    ids = ids_of(history, "the items of the history")
    numbers = run.encoder.item_numbers(ids)
    for item, number in zip(ids, numbers, strict=True):
        if number < 0:
            warnings.warn(f"the item '{item}' of the history is unknown and has no effect.", stacklevel=4)
    chosen = numbers[numbers >= 0].astype(np.int32)
    return newcomer(run, {} if attributes is None else attributes, chosen if len(chosen) else None, context)
