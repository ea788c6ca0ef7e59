"""Why, what is near, and what carries the scores: questions to a fitted run whose score is a sum over pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import torch

from gmlfm.arguments import id_of, whole_number
from gmlfm.errors import DataError, NotSupportedError, OptionError
from gmlfm.fitting import FittedRun
from gmlfm.models.base import UserSide
from gmlfm.models.terms import EarlierTerms, Terms
from gmlfm.recommender.complete_history import asked_users
from gmlfm.recommender.observed import Observed
from gmlfm.recommender.user_side import known_users
from gmlfm.retrieval.explaining import EarlierNames, Explanation, Grouped, contrast, explain, field_label, field_sums

_SAMPLE = 500


def explain_pair(observed: Observed, user: Any, item: Any, context: Mapping[str, Any] | None) -> Explanation:
    run = observed.index.run
    return explain_item(run, asked_users(observed, [id_of(user, "the user")], context), item_number(run, item))


def explain_item(run: FittedRun, user: UserSide, item: int) -> Explanation:
    """user: one."""
    terms = _terms(run, user, item)
    given = {"item": (run.data.items.fields, item), "user": (run.data.users.fields, int(user.numbers[0]))}

    def names(rows: npt.NDArray[np.int64], x: npt.NDArray[np.float32]) -> list[tuple[str, str, str]]:
        if not rows.all():  # an id that is known without a row
            return [("item", "item", str(run.encoder.item_ids[item]))]
        return [
            (part, name, shown if number is None else _number(given.get(part), name, number))
            for part, name, shown, number in run.encoder.attribute_values(rows, x).rows()
        ]

    return explain(terms, names, None if terms.earlier is None else _earlier_names(run, terms.earlier))


def grouped_by_fields(run: FittedRun, user: UserSide, item: int) -> Grouped:
    """`explain_item(...).by_fields()` without every term: a history has thousands of them."""
    terms = _terms(run, user, item)
    earlier = [] if terms.earlier is None else _fields_of(run, terms.earlier.ids, terms.earlier.roles)
    return field_sums(terms, _fields_of(run, terms.ids, ["item"] * len(terms.ids)), earlier)


def _fields_of(run: FittedRun, rows: npt.NDArray[np.int64], parts: Sequence[str]) -> list[str]:
    """The field of each row of the table, as terms name it. parts: of the ids that have no row."""
    codes = run.encoder.fields
    labels = [field_label(code.part, code.name) for code in codes]
    places = np.searchsorted([code.offset for code in codes], rows, side="right") - 1
    return [field_label(part, "item") if place < 0 else labels[place] for place, part in zip(places, parts, strict=True)]


def _terms(run: FittedRun, user: UserSide, item: int) -> Terms:
    try:
        return run.model.explain(user, item)
    except NotSupportedError as error:
        raise _not_available(run, "an explanation") from error


def _earlier_names(run: FittedRun, earlier: EarlierTerms) -> EarlierNames:
    numbers = np.unique(earlier.items)
    ids = dict(zip(numbers.tolist(), run.encoder.ids_of_items(numbers).to_list(), strict=True))
    attributes = []
    if earlier.ids.all():
        named = run.encoder.attribute_values(earlier.ids, earlier.x / earlier.role_weights).rows()
        for (_, name, shown, decoded), number in zip(named, earlier.items.tolist(), strict=True):
            value = shown if decoded is None else _number((run.data.items.fields, number), name, decoded)
            attributes.append((name, value))
    else:
        attributes = [("item", str(run.encoder.item_ids[number])) for number in earlier.items.tolist()]
    titles = run.data.items.titles
    called = {} if titles is None else dict(zip(numbers.tolist(), titles[numbers].to_list(), strict=True))
    return EarlierNames(
        attributes,
        [ids[number] for number in earlier.items.tolist()],
        {ids[number]: title for number, title in called.items() if title is not None},
    )


def _number(given: tuple[pl.DataFrame, int] | None, name: str, decoded: float) -> str:
    """As the table has it: x stands for an outlier's value only up to a limit."""
    value = decoded
    if given is not None and given[1] >= 0 and name in given[0].columns:
        value = given[0][name][given[1]]
    return f"{value:.0f}" if float(value).is_integer() and abs(value) < 1e15 else f"{value:.6g}"


def _not_available(run: FittedRun, what: str) -> NotSupportedError:
    return NotSupportedError(
        f"{what} is not available for '{run.settings.model}': its score is no sum over pairs of attributes."
    )


def item_number(run: FittedRun, item: Any) -> int:
    number = int(run.encoder.item_numbers([id_of(item, "the item")])[0])
    if number < 0:
        raise DataError(f"the item '{item}' is not in the catalogue, so nothing is known of it.")
    return number


def contrast_with(observed: Observed, user: Any, item: Any, against: Any, context: Mapping[str, Any] | None) -> Grouped:
    """against: another item, or None for the mean of the catalogue."""
    run, side = observed.index.run, asked_users(observed, [id_of(user, "the user")], context)
    others = sampled_items(run) if against is None else [item_number(run, against)]
    return contrast(
        grouped_by_fields(run, side, item_number(run, item)), [grouped_by_fields(run, side, int(other)) for other in others]
    )


def sampled_items(run: FittedRun) -> npt.NDArray[np.int64]:
    """The catalogue's items, or a seeded sample of them, to compare with."""
    seen = run.data.seen_items
    return np.sort(np.random.default_rng(41).choice(seen, min(_SAMPLE, len(seen)), replace=False)).astype(np.int64)


def similar(run: FittedRun, side: str, entity: Any, n: int) -> pl.DataFrame:
    """The n nearest users or items in the learned metric: by the distance between their positions."""
    n = whole_number(n, "n", least=1)
    is_item = side == "item"
    number = item_number(run, entity) if is_item else int(run.encoder.user_numbers([id_of(entity, "the user")])[0])
    if number < 0:
        raise DataError(f"the user '{entity}' is unknown, so nothing is near.")
    try:
        positions = run.model.positions(run.encoded.item if is_item else run.encoded.user)
    except NotSupportedError as error:
        raise _not_available(run, "a neighbourhood") from error
    distances = (positions - positions[number]).square().sum(1).sqrt()
    distances[number] = torch.inf
    order = torch.sort(distances, stable=True)
    nearest = order.indices[: min(n, len(distances) - 1)].cpu().numpy()
    ids = run.encoder.ids_of_items(nearest) if is_item else run.encoder.ids_of_users(nearest)
    columns = [ids, pl.Series("distance", order.values[: len(nearest)].cpu().double().numpy())]
    columns.append(pl.Series("rank", np.arange(1, len(nearest) + 1)))
    titles = run.data.items.titles if is_item else None
    if titles is not None:
        columns.append(titles[nearest].alias("title"))
    return pl.DataFrame(columns)


def field_pairs(run: FittedRun, seed: int = 0) -> pl.DataFrame:
    """fields, spread, mean: how much each pair of fields moves the score, over a seeded sample of users and items.

    spread: the standard deviation of what it adds; a pair that adds the same to everything orders nothing.
    """
    rng = np.random.default_rng([seed, 42])
    numbers = rng.choice(run.data.seen_users, _SAMPLE // 2)
    items = rng.choice(run.data.seen_items, _SAMPLE // 2)
    users = known_users(run, numbers.astype(np.int64), None)
    sums: dict[tuple[str, ...], list[float]] = {}
    for n_before, item in enumerate(items):
        for fields, value in grouped_by_fields(run, users.slice(n_before, n_before + 1), int(item)).items():
            sums.setdefault(fields, [0.0] * n_before).append(value)
        for values in sums.values():
            values.extend([0.0] * (n_before + 1 - len(values)))
    rows = [(" x ".join(fields), float(np.std(values)), float(np.mean(values))) for fields, values in sums.items() if fields]
    table = pl.DataFrame(rows, schema={"fields": pl.String, "spread": pl.Float64, "mean": pl.Float64}, orient="row")
    return table.sort("spread", descending=True)


def directions(run: FittedRun, n: int = 3, n_attributes: int = 5) -> pl.DataFrame:
    """For a Mahalanobis distance: the eigen-directions of M that weigh most, and the attributes furthest along each."""
    n = whole_number(n, "n", least=1)
    try:
        matrix, factors = run.model.metric()
    except NotSupportedError as error:
        raise OptionError(f"'{run.settings.model}' has no matrix M here; gml-fm-md has one, and gml-fm with a rank.") from error
    values, vectors = torch.linalg.eigh(matrix.double())
    share = (values / values.sum()).flip(0)
    rows = []
    for number in range(min(n, len(values))):
        along = factors.double() @ vectors[:, len(values) - 1 - number]
        along[0] = 0.0  # padding
        for row in torch.argsort(-along.abs(), stable=True)[:n_attributes].tolist():
            part, name, value = run.encoder.attribute_names([row]).row(0)
            label = f"{part}.{name}" if run.encoder.is_number(row) else f"{part}.{name} = {value}"
            rows.append((number + 1, float(share[number]), label, float(along[row])))
    schema = {"direction": pl.Int64, "share": pl.Float64, "attribute": pl.String, "along": pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row")
