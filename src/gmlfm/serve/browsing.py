"""Items, users, fields and the run itself, as answers show them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from gmlfm.recommender.observed import Observed
from gmlfm.serve.catalogue import shown_values
from gmlfm.serve.hosting import Served
from gmlfm.serve.problems import Problem
from gmlfm.serve.questions import Answer

_MOST_CATEGORIES = 200
_LIMITS = (
    "Scores order items for one user; they are no probabilities and are not comparable between users or runs.",
    "Items that few people chose, and users with few rows, are known less well; GET /curve has the run's own figures.",
    "The run knows what its data held: what it was trained on decides whom it serves well.",
)


def found_items(served: Served, words: str, limit: int, offset: int) -> Answer:
    numbers, total = served.catalogue.find_items(words, limit, offset)
    return {"items": served.catalogue.cards(numbers), "total": total}


def item_of(served: Served, item: str) -> Answer:
    number = served.catalogue.numbers_of([item])[0]
    if number < 0:
        raise Problem(404, "this item is not in the catalogue.")
    return {**served.catalogue.cards([number])[0], "available": bool(served.recommender.stock.is_available[number])}


def found_users(served: Served, words: str, limit: int, offset: int) -> Answer:
    run, index = served.recommender.fitted, served.recommender.observed.index
    numbers, total = served.catalogue.find_users(words, limit, offset)
    ids = run.encoder.ids_of_users(np.array(numbers, np.int64)).to_list()
    users = [{"user": user, "known": bool(index.trained_users[number])} for user, number in zip(ids, numbers, strict=True)]
    return {"users": users, "total": total}


def user_of(served: Served, user: str, limit: int) -> Answer:
    observed = served.recommender.observed
    run = observed.index.run
    number = int(run.encoder.user_numbers([user])[0])
    if number < 0 and user not in observed:
        raise Problem(404, "this user is not known here.")
    rows = _history(observed, user, number)
    shown = rows[:limit]
    cards = served.catalogue.cards([item for item, *_ in shown])
    history = [
        {**card, "time": time, "event": event, "observed": is_observed}
        for card, (_, time, event, is_observed) in zip(cards, shown, strict=True)
    ]
    attributes = served.catalogue.user_attributes(number)
    given = run.encoder.ids_given([user])[0]
    known = bool(observed.index.trained_users[number])
    return {"user": given, "known": known, "attributes": attributes, "history": history, "total": len(rows)}


def _history(observed: Observed, user: str, number: int) -> list[tuple[int, Any, str | None, bool]]:
    """Item, time, kind of event, was it observed? The latest first; of the data first by time, then of the observed rows."""
    of_data: list[tuple[int, Any, str | None, bool]] = []
    if number >= 0:
        data, rows = observed.index.run.data, observed.index.rows_of_user(number)
        times = data.interactions["time"].gather(rows).to_list() if "time" in data.interactions.columns else [None] * len(rows)
        of_data = [(int(item), time, None, False) for item, time in zip(data.item_numbers[rows], times, strict=True)]
        if "time" in data.interactions.columns:
            of_data.sort(key=lambda row: row[1])
    numbers = observed.index.item_numbers
    of_data += [(numbers[item], time, event, True) for _, item, time, event in observed.rows_of(user) if item in numbers]
    return of_data[::-1]


def schema_of(served: Served) -> Answer:
    run, catalogue = served.recommender.fitted, served.catalogue
    return {
        "fields": catalogue.made_once(
            "schema", lambda: [_field(run.data, part, field) for part, field in run.data.schema.all_fields()]
        ),
        "n_users": len(run.data.users),
        "n_items": len(run.data.items),
        "reads_history": bool(run.model.reads_history),
        "has_titles": run.data.items.titles is not None,
    }


def _field(data: Any, part: str, field: Any) -> Answer:
    frame = {"user": data.users.fields, "item": data.items.fields, "context": data.context}[part]
    answer: Answer = {"name": field.name, "role": part, "kind": field.kind, "categories": [], "n_categories": 0}
    if field.name not in frame.columns:
        return answer
    values = frame[field.name]
    if field.kind == "number":
        finite = values.cast(pl.Float64).drop_nulls().drop_nans()
        figures = {"least": finite.min(), "median": finite.median(), "most": finite.max()}
        return {**answer, **{name: _finite(value) for name, value in figures.items()}}
    if isinstance(values.dtype, pl.List):
        values = values.drop_nulls().explode(empty_as_null=False)
    counts = (
        values.drop_nulls()
        .cast(pl.String)
        .alias("value")
        .value_counts(name="count")
        .sort(["count", "value"], descending=[True, False])
    )
    return {**answer, "categories": counts.head(_MOST_CATEGORIES).to_dicts(), "n_categories": counts.height}


def _finite(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def card_of(served: Served) -> Answer:
    """What a reader of the run has to know: where it is from, how good it was, and what it is not for."""
    run, about = served.recommender.fitted, served.recommender.about
    data = run.data
    return {
        "model": run.settings.model,
        "task": run.settings.task,
        "preset": run.settings.preset,
        "settings": _plain(run.settings.to_dict()["settings"]),
        "data": {
            "name": data.name,
            "hash": data.content_hash,
            "users": len(data.users),
            "items": len(data.items),
            "interactions": len(data.interactions),
        },
        "split": {"name": run.split.name, "hash": run.split.hash},
        "refit": run.refit.label,
        "best_epoch": run.best_epoch,
        "interrupted": run.report.interrupted,
        "validation": _plain(run.validation),
        "validation_protocol": run.validation_protocol,
        "fields": [{"role": part, "name": field.name, "kind": field.kind} for part, field in data.schema.all_fields()],
        "reads_history": bool(run.model.reads_history),
        "added_items": run.n_added_items,
        "observed": served.recommender.observed.n,
        "updates": [_plain(update) for update in run.updates],
        "versions": _plain(about.get("versions", {})),
        "limits": list(_LIMITS),
    }


def curve_of(served: Served) -> Answer:
    run = served.recommender.fitted
    return {
        "curve": [_plain(entry) for entry in run.curve],
        "validation": _plain(run.validation),
        "validation_protocol": run.validation_protocol or "",
        "best_epoch": run.best_epoch,
    }


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """As JSON has them; mappings within stay mappings."""
    return {
        name: _plain(value) if isinstance(value, Mapping) else shown_values({name: value})[name]
        for name, value in values.items()
    }
