"""Why, what is near, and what carries the scores: questions to a fitted run whose score is a sum over pairs."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import torch

from gmlfm.data.attributes import AttributeTable
from gmlfm.distances import Linear
from gmlfm.errors import DataError, OptionError
from gmlfm.fitting import FittedRun
from gmlfm.models.base import PairwiseModel
from gmlfm.recommender.user_side import known_user_side
from gmlfm.retrieval import Scorer
from gmlfm.retrieval.explaining import Explanation, explain

_SAMPLE = 500


def pairwise_of(fitted: FittedRun, what: str) -> tuple[Scorer, PairwiseModel]:
    if not isinstance(fitted.scores, Scorer) or not isinstance(fitted.scores.model, PairwiseModel):
        raise OptionError(
            f"{what} is not available for '{fitted.settings.model}': its score is no sum over pairs of attributes."
        )
    return fitted.scores, fitted.scores.model


def explain_pair(fitted: FittedRun, user: Any, item: Any) -> Explanation:
    number = fitted.encoder.user_numbers([user])
    return explain_user_side(fitted, known_user_side(fitted, number, None), item_number(fitted, item))


def explain_user_side(fitted: FittedRun, user_side: AttributeTable, item: int) -> Explanation:
    """user_side: one row."""
    scorer, model = pairwise_of(fitted, "an explanation")
    sides = [user_side, AttributeTable(fitted.encoded.item.ids[item : item + 1], fitted.encoded.item.values[item : item + 1])]
    if model.ids_only:
        sides = [AttributeTable(one.ids[:, :1], one.values[:, :1]) for one in sides]
    ids = np.concatenate([one.ids[0] for one in sides]).astype(np.int64)
    x = np.concatenate([one.values[0] for one in sides])
    there = x != 0

    def names(rows: npt.NDArray[np.int64]) -> list[tuple[str, str, str]]:
        found = fitted.encoder.attribute_names(rows).rows()
        return [(part, name, str(value)) for part, name, value in found]

    rows = scorer.rows_of(torch.from_numpy(ids[there]))
    return explain(model, rows, ids[there], x[there], names, scorer.label_scale)


def item_number(fitted: FittedRun, item: Any) -> int:
    number = int(fitted.encoder.item_numbers([item])[0])
    if number < 0:
        raise DataError(f"the item '{item}' is not in the catalogue, so nothing is known of it.")
    return number


def sampled_items(fitted: FittedRun) -> npt.NDArray[np.int64]:
    """The catalogue's items, or a seeded sample of them, to compare with."""
    seen = fitted.data.seen_items
    return np.sort(np.random.default_rng(41).choice(seen, min(_SAMPLE, len(seen)), replace=False)).astype(np.int64)


def _count(n: int) -> None:
    if not isinstance(n, int | np.integer) or n < 1:
        raise OptionError(f"n is {n!r}; expected a whole number of 1 or more.")


def similar(fitted: FittedRun, side: str, given: Any, n: int) -> pl.DataFrame:
    """The n nearest users or items in the learned metric: by the distance between their positions."""
    scorer, _ = pairwise_of(fitted, "a neighbourhood")
    _count(n)
    items = side == "item"
    number = item_number(fitted, given) if items else int(fitted.encoder.user_numbers([given])[0])
    if number < 0:
        raise DataError(f"the user '{given}' is unknown, so nothing is near.")
    table = fitted.encoded.item if items else fitted.encoded.user
    positions = scorer.positions(table)
    apart = (positions - positions[number]).square().sum(1).sqrt()
    apart[number] = torch.inf
    found = torch.sort(apart, stable=True)
    nearest = found.indices[: min(n, len(apart) - 1)].cpu().numpy()
    ids = fitted.encoder.ids_of_items(nearest) if items else fitted.encoder.ids_of_users(nearest)
    columns = [ids, pl.Series("distance", found.values[: len(nearest)].cpu().double().numpy())]
    columns.append(pl.Series("rank", np.arange(1, len(nearest) + 1)))
    titles = fitted.data.items.titles if items else None
    if titles is not None:
        columns.append(titles[nearest].alias("title"))
    return pl.DataFrame(columns)


def field_pairs(fitted: FittedRun, seed: int = 0) -> pl.DataFrame:
    """fields, spread, mean: how much each pair of fields moves the score, over a seeded sample of users and items.

    spread: the standard deviation of what it adds; a pair that adds the same to everything orders nothing.
    """
    pairwise_of(fitted, "a table of field pairs")
    rng = np.random.default_rng([seed, 42])
    users = rng.choice(fitted.data.seen_users, _SAMPLE // 2)
    items = rng.choice(fitted.data.seen_items, _SAMPLE // 2)
    user_side = known_user_side(fitted, users.astype(np.int64), None)
    found: dict[tuple[str, ...], list[float]] = {}
    for at, item in enumerate(items):
        one = explain_user_side(fitted, AttributeTable(user_side.ids[at : at + 1], user_side.values[at : at + 1]), int(item))
        for fields, value in one.by_fields().items():
            found.setdefault(fields, [0.0] * at).append(value)
        for values in found.values():
            values.extend([0.0] * (at + 1 - len(values)))
    rows = [(" x ".join(fields), float(np.std(values)), float(np.mean(values))) for fields, values in found.items() if fields]
    table = pl.DataFrame(rows, schema={"fields": pl.String, "spread": pl.Float64, "mean": pl.Float64}, orient="row")
    return table.sort("spread", descending=True)


def directions(fitted: FittedRun, n: int = 3, attributes: int = 5) -> pl.DataFrame:
    """For a Mahalanobis distance: the eigen-directions of M that weigh most, and the attributes furthest along each."""
    _, model = pairwise_of(fitted, "a metric's directions")
    _count(n)
    transform = getattr(model, "transform", None)
    if not isinstance(transform, Linear):
        raise OptionError(f"'{fitted.settings.model}' has no matrix M; gml-fm-md has.")
    with torch.no_grad():
        values, vectors = torch.linalg.eigh(transform.metric().double())
        factors = fitted.weights["table"][:, 1:].double()
    share = (values / values.sum()).flip(0)
    rows = []
    for at in range(min(n, len(values))):
        along = factors @ vectors[:, len(values) - 1 - at]
        along[0] = 0.0  # padding
        for row in torch.argsort(-along.abs(), stable=True)[:attributes].tolist():
            part, name, value = fitted.encoder.attribute_names([row]).row(0)
            rows.append((at + 1, float(share[at]), f"{part}.{name} = {value}", float(along[row])))
    schema = {"direction": pl.Int64, "share": pl.Float64, "attribute": pl.String, "along": pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row")
