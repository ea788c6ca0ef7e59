"""A summary of a dataset to read before training on it: counts, fields, the long tail, the split, and warnings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from gmlfm.data.dataset import Dataset
from gmlfm.data.encoding import Encoder
from gmlfm.data.splits import AUTO, Split, make_split
from gmlfm.data.suspicious_times import suspicious_times, tied_share

_TAIL_EDGES = (1, 2, 3, 6, 11, 31, 101, 301, 1001)


@dataclass(frozen=True)
class FieldSummary:
    part: str
    name: str
    kind: str
    values: int
    missing: float
    example: str


@dataclass(frozen=True)
class TailStep:
    """Items with `low` to `high` interactions: how many, and their share of all interactions."""

    low: int
    high: int | None
    items: int
    share: float


@dataclass(frozen=True)
class Summary:
    """history_rows: that count as history alone; tied_rows: the share of positives whose user has another row of their time."""

    name: str
    hash: str
    users: int
    items: int
    interactions: int
    attributes: int
    catalogue: int
    sparsity: float
    positives: int
    history_rows: int
    tied_rows: float | None
    sells_once: bool
    fields: tuple[FieldSummary, ...]
    tail: tuple[TailStep, ...]
    split: dict[str, Any]
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def describe(data: Dataset, split_name: str = AUTO, seed: int = 0, split_options: Mapping[str, Any] | None = None) -> Summary:
    encoder = Encoder.fit(data, np.arange(data.n_interactions))
    split = make_split(data, split_name, seed=seed, **(split_options or {}))
    n_users, n_items = len(data.seen_users), len(data.seen_items)
    return Summary(
        name=data.name,
        hash=data.content_hash,
        users=n_users,
        items=n_items,
        interactions=data.n_interactions,
        attributes=encoder.n_attributes,
        catalogue=len(data.items),
        sparsity=1.0 - _distinct_pairs(data) / (n_users * n_items),
        positives=len(data.positive_rows),
        history_rows=data.history_rows.height,
        tied_rows=tied_share(data),
        sells_once=data.sells_once,
        fields=tuple(_fields(data, encoder)),
        tail=tuple(_tail(np.bincount(data.item_numbers)[data.seen_items])),
        split=_split_summary(data, split),
        notes=(*_single_unit_notes(data), *_history_notes(data), *split.notes),
        warnings=(*data.warnings, *_suspicions(data)),
    )


def _single_unit_notes(data: Dataset) -> list[str]:
    """That items sell once, how that is known, and what can be had."""
    if not data.sells_once:
        return []
    is_single = data.single_unit_items
    n_sold = int(is_single[data.seen_items].sum())
    declared = data.schema.items is not None and data.schema.items.sells_once != "auto"
    reason = "as [items] sells_once says" if declared else "nine in ten sold items have one row"
    exempt = len(data.seen_items) - n_sold
    listed = "with listing times" if data.availability is not None else "without listing times ([items] listed)"
    return [
        f"items sell once ({reason}): {n_sold:,} sold, {int(is_single.sum()) - n_sold:,} not sold yet, {listed}; "
        f"{exempt:,} items with more rows are exempt."
    ]


def _history_notes(data: Dataset) -> list[str]:
    n_had = int(data.history_rows["is_had"].sum())
    n_events = data.history_rows.height - n_had
    counts = {"merged repeats": n_had, f"events that are no {', '.join(data.schema.interactions.targets or ())}": n_events}
    listed = " and ".join(f"{n:,} {name}" for name, n in counts.items() if n)
    return [f"history alone, never learned as targets: {listed}."] if listed else []


def _distinct_pairs(data: Dataset) -> int:
    pairs = data.user_numbers.astype(np.int64) * len(data.items) + data.item_numbers
    return pl.Series(pairs).n_unique()


def _fields(data: Dataset, encoder: Encoder) -> list[FieldSummary]:
    rows = []
    for code, texts in zip(encoder.fields, encoder.values, strict=True):
        if code.kind == "id":
            rows.append(FieldSummary(code.part, code.name, "id", code.n_values, 0.0, str(texts[0]) if len(texts) else ""))
            continue
        column = data.columns_of(code.part)[code.name]
        missing = column.null_count() / max(len(column), 1)
        if code.kind == "number":
            finite = column.drop_nulls().to_numpy()
            example = f"{finite.min():g} to {finite.max():g}" if len(finite) else ""
        else:
            example = ", ".join(str(text) for text in texts.head(3))
        rows.append(FieldSummary(code.part, code.name, code.kind, code.n_values, missing, example))
    return rows


def _tail(counts: npt.NDArray[np.int64]) -> list[TailStep]:
    total = counts.sum()
    steps = []
    for low, following in zip(_TAIL_EDGES, (*_TAIL_EDGES[1:], None), strict=True):
        in_step = (counts >= low) & (counts < following if following else True)
        if in_step.any():
            high = following - 1 if following else None
            steps.append(TailStep(low, high, int(in_step.sum()), float(counts[in_step].sum() / total)))
    return steps


def _split_summary(data: Dataset, split: Split) -> dict[str, Any]:
    trained_users = np.zeros(len(data.users), bool)
    trained_items = np.zeros(len(data.items), bool)
    trained_users[data.user_numbers[split.train]] = True
    trained_items[data.item_numbers[split.train]] = True
    result: dict[str, Any] = {"name": split.name, "hash": split.hash, "train": {"rows": len(split.train)}}
    for part, rows in (("validation", split.validation), ("test", split.test)):
        users, items = np.unique(data.user_numbers[rows]), np.unique(data.item_numbers[rows])
        result[part] = {
            "rows": len(rows),
            "users": len(users),
            "new_users": int((~trained_users[users]).sum()),
            "items": len(items),
            "new_items": int((~trained_items[items]).sum()),
        }
    return result


def _suspicions(data: Dataset) -> list[str]:
    return [*suspicious_times(data), *_suspicious_items(data), *_suspicious_fields(data)]


def _suspicious_items(data: Dataset) -> list[str]:
    result = []
    counts = np.bincount(data.item_numbers)
    top = int(counts.argmax())
    if counts[top] >= 0.5 * data.n_interactions and data.n_interactions > 1:
        result.append(f"one item, {data.items.ids[top]!r}, holds {counts[top] / data.n_interactions:.0%} of all interactions.")
    once = int((counts[data.seen_items] == 1).sum())
    if once > 0.5 * len(data.seen_items):
        result.append(
            f"{once:,} of {len(data.seen_items):,} items occur once: min_count = {{ item = 2 }} would spare their id rows, "
            "and attributes must carry the recommendation."
        )
    return result


def _suspicious_fields(data: Dataset) -> list[str]:
    result = []
    for part, field in data.schema.all_fields():
        column = data.columns_of(part)[field.name].drop_nulls()
        place = f"{part}.{field.name}"
        if len(column) == 0:
            result.append(f"{place} has no value at all.")
        elif field.kind == "category":
            n_distinct = column.n_unique()
            if n_distinct == len(column) and n_distinct > 10:
                result.append(
                    f"{place} has as many values as rows ({n_distinct:,}): it is an id and teaches nothing about others."
                )
            elif n_distinct > 50 and column.cast(pl.Float64, strict=False).null_count() == 0:
                result.append(f"{place} is a category of {n_distinct:,} numbers: is it a number stored as text?")
        elif field.kind == "number" and column.n_unique() == 1:
            result.append(f"{place} is always {column[0]:g}: it teaches nothing.")
    return result
