"""What users were observed to do, as a Dataset of the run's schema."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from gmlfm.data.building import merge_repeats
from gmlfm.data.columns import IdType
from gmlfm.data.dataset import Dataset, Side
from gmlfm.data.events import EventRoles, history_alone, no_history
from gmlfm.recommender.run_index import RunIndex, kinds_in_data
from gmlfm.runs.event_lines import ObservedRow, Time


def observed_data(index: RunIndex, rows: Sequence[ObservedRow]) -> Dataset:
    """rows: of items of the catalogue, each user's together, in the order of time.

    A row without a time comes right after its user's latest one; where nothing is known of the user, after all of the data. A
    row without a kind counts as a target and as history. Labels and context are missing, a weight is 1.
    """
    data = index.run.data
    spec = data.schema.interactions
    users, items = (list(dict.fromkeys(texts)) for texts in ([row[0] for row in rows], [row[1] for row in rows]))
    table = pl.DataFrame(
        {
            "user": _places(users, [row[0] for row in rows]),
            "item": _places(items, [row[1] for row in rows]),
        }
    )
    if "time" in data.interactions.columns:
        table = table.with_columns(pl.Series("time", _times(index, users, rows), strict=False))
    kinds = pl.Series("event", [row[3] for row in rows], dtype=pl.String)
    roles = EventRoles.of(kinds, spec, len(rows))
    is_target, is_history = roles.is_target | kinds.is_null(), roles.is_history | kinds.is_null()
    usual: dict[str, pl.Expr | pl.Series] = {
        "positive": pl.lit(True),
        "label": pl.lit(None, pl.Float64),
        "weight": pl.lit(1.0),
        "is_history": is_history.alias("is_history"),
    }
    columns = [values.alias(name) for name, values in usual.items() if name in data.interactions.columns]
    interactions = table.with_columns(columns).filter(is_target).select(data.interactions.columns)
    types = {name: dtype for name, dtype in data.interactions.schema.items() if name != "time"}
    interactions = interactions.cast(types)  # type: ignore[arg-type]
    context = data.context.clear(interactions.height) if data.context.width else data.context
    places = is_target.arg_true().to_numpy().astype(np.int64)
    had, latest = np.empty(0, np.int64), places
    if spec.repeats == "merge" and interactions.height:
        interactions, context, kept_places = merge_repeats(interactions, context)
        latest = places[kept_places]
        had = np.setdiff1d(places[is_history.filter(is_target).to_numpy()], latest)
    others = (is_history & ~is_target).arg_true().to_numpy().astype(np.int64)
    history = history_alone(table, latest, had, others) if len(had) + len(others) else no_history()
    sides = (_side(users, data.users.id_type), _side(items, data.items.id_type))
    return Dataset(data.schema, interactions, context, *sides, (), history)


def _places(distinct: list[str], texts: list[str]) -> npt.NDArray[np.int32]:
    place = {text: number for number, text in enumerate(distinct)}
    return np.array([place[text] for text in texts], np.int32)


def _side(ids: list[str], id_type: IdType) -> Side:
    """Known by their ids alone; where those of the data are whole numbers, so must these be to keep that type."""
    values = pl.Series("id", ids, dtype=pl.String)
    is_whole = id_type == "integer" and values.cast(pl.Int128, strict=False).null_count() == 0
    return Side(values, "integer" if is_whole else "text", pl.DataFrame(), None, 0)


def _times(index: RunIndex, users: list[str], rows: Sequence[ObservedRow]) -> list[Time]:
    latest = _latest_times(index, users)
    times: list[Time] = []
    for user, _, time, _ in rows:
        before = latest[user]
        # Of equal times neither row is history of the other, but what came without a time came after what was known.
        times.append(_following(before) if time is None else time)
        latest[user] = max(before, times[-1])
    return times


def _following(time: Time) -> Time:
    return time + 1 if isinstance(time, int) else float(np.nextafter(time, np.inf))


def _latest_times(index: RunIndex, users: list[str]) -> dict[str, Time]:
    overall = 0 if index.latest_time is None else index.latest_time  # nobody's row has a time
    result: dict[str, Time] = {}
    for user, number in index.user_numbers(users).items():
        times = [] if number < 0 else [time for _, time, _ in index.timed_rows(number) if time is not None]
        result[user] = max(times, default=overall)
    return result


def part_of(data: Dataset, before: Dataset, rows: Sequence[ObservedRow]) -> list[ObservedRow]:
    """Which of the observed rows the data have: by user, item, time and kind; without a time, as a new row of the pair, which
    the data before, of which these are grown, did not have."""
    if not rows:
        return []
    users = dict(zip(data.users.ids.to_list(), range(len(data.users)), strict=True))
    asked = np.array(sorted({users[row[0]] for row in rows if row[0] in users}), np.int32)
    pairs: set[tuple[str, str, bool]] = set()
    timed: set[tuple[str, str, Time | None, bool]] = set()
    for frame, old in ((data.interactions, before.interactions), (data.history_rows, before.history_rows)):
        is_new = np.arange(frame.height) >= old.height
        chosen = np.isin(frame["user"].to_numpy(), asked)
        frame = frame.filter(chosen)
        times = frame["time"].to_list() if "time" in frame.columns else [None] * frame.height
        was_had = frame["is_had"].to_list() if "is_had" in frame.columns else [True] * frame.height
        names = (data.users.ids[frame["user"].to_numpy()], data.items.ids[frame["item"].to_numpy()])
        for user, item, time, had, is_new_row in zip(*names, times, was_had, is_new[chosen], strict=True):
            timed.add((user, item, time, had))
            if is_new_row:
                pairs.add((user, item, had))
    targets = data.schema.interactions.targets

    def is_part(row: ObservedRow) -> bool:
        user, item, time, kind = row
        kinds = kinds_in_data(kind, targets)
        if time is None:
            return any((user, item, had) in pairs for had in kinds)
        return any((user, item, time, had) in timed for had in kinds)

    return [row for row in rows if is_part(row)]
