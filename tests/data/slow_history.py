"""What counts as history, row by row in plain Python: docs/data.md, "What counts as history"."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]  # user, item, time, kind, stars


@dataclass(frozen=True)
class SlowHistory:
    """targets: places in the file of the interactions; alone: of the history rows, with is_had; counts: of each target."""

    targets: list[int]
    alone: list[tuple[int, bool]]
    counts: list[bool]


def slow_history(rows: list[Row], spec: dict[str, Any], least_stars: int | None) -> SlowHistory:
    def is_in(kind: str | None, key: str) -> bool:
        return "event" not in spec or spec.get(key) is None or kind in spec[key]

    def counts(row: Row) -> bool:
        is_positive = least_stars is None or (row["stars"] is not None and row["stars"] >= least_stars)
        return is_in(row["kind"], "history_events") and (is_positive or not is_in(row["kind"], "targets"))

    places = [place for place, row in enumerate(rows) if is_in(row["kind"], "targets")]
    kept = []
    for place in places:
        pair = [other for other in places if all(rows[other][key] == rows[place][key] for key in ("user", "item"))]
        latest = max(pair, key=lambda other: (_moment(rows[other]), other))
        if spec.get("repeats") == "keep" or place == latest:
            kept.append(place)
    alone = [(place, place in places) for place, row in enumerate(rows) if place not in kept and counts(row)]
    return SlowHistory(kept, alone, [counts(rows[place]) for place in kept])


def is_earlier(rows: list[Row], place: int, other: int, ties: str) -> bool:
    """Whether the row at `place` is history of the one at `other`, under ties = strict or file."""
    moments = _moment(rows[place]), _moment(rows[other])
    return moments[0] < moments[1] or (ties == "file" and moments[0] == moments[1] and place < other)


def _moment(row: Row) -> float:
    return float("-inf") if row["time"] is None else float(row["time"])
