"""Tables of what users just did, checked as a whole before anything of them is kept."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import polars as pl

from gmlfm.arguments import shown
from gmlfm.data.columns import Origin, as_text
from gmlfm.data.interop import as_frame
from gmlfm.errors import DataError, SchemaError
from gmlfm.fitting import FittedRun
from gmlfm.recommender.changes import with_new_items
from gmlfm.recommender.following import following
from gmlfm.recommender.observed import Observed
from gmlfm.recommender.observed_times import times_on_the_scale
from gmlfm.recommender.run_index import RunIndex, kinds_in_data
from gmlfm.recommender.state import State
from gmlfm.reports import ObserveReport as ObserveReport
from gmlfm.runs import RunFolder
from gmlfm.runs.event_lines import ObservedRow, is_time

_ORIGIN = Origin("the observations")
_MOST_KINDS_SHOWN = 5
_NESTED = (list, tuple, set, frozenset, pl.Series)


def observed_rows(index: RunIndex, interactions: Any, origin: Origin | None = None) -> list[ObservedRow]:
    """A table, a list of rows by column, or one such row. Its columns are user, item and perhaps time and event, or are named
    as in the data. Whatever cannot be kept is refused by its place; `origin` tells it."""
    if isinstance(interactions, list | tuple) and not interactions:
        return []
    origin, table = origin or _ORIGIN, _as_table(interactions)
    columns = _columns(table, index, origin)
    users, items = (_ids(columns[side], origin) for side in ("user", "item"))
    _refuse_unknown_items(items, index, origin)
    times = events = [None] * table.height
    if "time" in columns:
        times = times_on_the_scale(columns["time"].alias("time"), index, origin).to_list()
        _refuse_impossible_times(times, origin)
    if "event" in columns:
        events = _texts(columns["event"], origin, "the kind of an event").replace("", None).to_list()
    # Each text is held once, however often it comes.
    return [
        (sys.intern(user), sys.intern(item), time, event and sys.intern(event))
        for user, item, time, event in zip(users, items, times, events, strict=True)
    ]


def new_rows(index: RunIndex, observed: Observed, rows: list[ObservedRow]) -> tuple[list[ObservedRow], ObserveReport]:
    """Those that neither the data nor earlier observations have; and what is to be told of all of them."""
    numbers = index.user_numbers(dict.fromkeys(row[0] for row in rows))
    of_data = {user: index.timed_rows(number) for user, number in numbers.items() if number >= 0}
    targets = index.run.data.schema.interactions.targets

    def is_of_data(row: ObservedRow) -> bool:
        user, item, time, kind = row
        known = of_data.get(user)
        if not known or time is None:
            return False
        number = index.item_numbers[item]
        return any((number, time, was_had) in known for was_had in kinds_in_data(kind, targets))

    unknown = [row for row in rows if not is_of_data(row)]
    _, fresh = observed.plus(unknown)
    n_new_users = sum(number < 0 and user not in observed for user, number in numbers.items())
    return fresh, ObserveReport(len(fresh), len(rows) - len(fresh), n_new_users)


def state_with_items(state: State, interactions: Any, items: Any, origin: Origin | None = None) -> State:
    """The state with those of the items that its catalogue lacks, once it is clear that the rows can be kept beside them."""
    run = with_new_items(state.run, items)
    if run is state.run:
        return state
    grown = State.of(run, state.stock.marks, state.observed)
    observed_rows(grown.index, interactions, origin)
    return grown


def state_observing(
    state: State, folder: RunFolder | None, interactions: Any, origin: Origin | None = None
) -> tuple[State, ObserveReport]:
    """The state with what is observed, which is on the disk then where there is a folder."""
    rows = checked_rows(state, interactions, origin)
    state, (report,) = state_observing_each(state, folder, [rows])
    return state, report


def checked_rows(state: State, interactions: Any, origin: Origin | None = None) -> list[ObservedRow]:
    """As they are kept; what cannot be kept is refused, and what has no effect warned of."""
    rows = observed_rows(state.index, interactions, origin)
    _warn_without_history(state.run)
    _warn_of_kinds(state.index, rows)
    return rows


def state_observing_each(
    state: State, folder: RunFolder | None, parts: Sequence[list[ObservedRow]]
) -> tuple[State, list[ObserveReport]]:
    """The state with the rows of several who observe, and a report for each: one write makes them durable together."""
    with nullcontext() if folder is None else folder.held_log() as log:
        observed = state.observed
        if folder is not None and log is not None:
            observed = following(observed, folder, log.observed())  # with others' rows
        reports, together = [], []
        for rows in parts:
            fresh, report = new_rows(state.index, observed, rows)
            observed = observed.plus(fresh)[0]
            reports.append(report)
            together += fresh
        if log is not None and together:
            log.append_observed(together)
            rows_of_log = log.observed()
            observed = observed.noting(rows_of_log, len(rows_of_log))
    return replace(state, observed=observed), reports


def _warn_without_history(run: FittedRun) -> None:
    """Where no score can change."""
    if not run.model.reads_history:
        message = (
            f"this run of '{run.settings.model}' does not read what users did before: what is observed is kept, and left out "
            "of their recommendations, but changes no score until a model that reads it is trained."
        )
        warnings.warn(message, stacklevel=4)


def _warn_of_kinds(index: RunIndex, rows: Sequence[ObservedRow]) -> None:
    """Of each kind of event that the data cannot place, once for a run."""
    spec = index.run.data.schema.interactions
    kinds = {row[3] for row in rows if row[3] is not None} - index.kinds_told
    if spec.event is not None:
        kinds = set() if None in (spec.targets, spec.history_events) else kinds - {*spec.targets, *spec.history_events}  # type: ignore[misc]
    if not kinds:
        return
    index.kinds_told |= kinds
    names = sorted(kinds)
    listed = ", ".join(f"'{kind}'" for kind in names[:_MOST_KINDS_SHOWN]) + (", ..." if len(names) > _MOST_KINDS_SHOWN else "")
    if spec.event is None:
        reason = "the data have no column of events, so every row counts as a choice and as history, whatever its kind"
    else:
        reason = "they are in neither targets nor history_events of the data, so these rows are kept but change nothing"
    warnings.warn(f"kinds of events that are observed: {listed}; {reason}.", stacklevel=4)


def _as_table(interactions: Any) -> pl.DataFrame:
    if isinstance(interactions, Mapping) and not any(_is_nested(value) for value in interactions.values()):
        interactions = [interactions]
    if isinstance(interactions, list | tuple):
        for row in interactions:
            if not isinstance(row, Mapping):
                raise DataError(
                    "observations are expected as a table, or as rows such as {'user': 'u17', 'item': 'i3'}; got "
                    f"{shown(row)} in a list."
                )
        names = dict.fromkeys(name for row in interactions for name in row)
        interactions = {name: [row.get(name) for row in interactions] for name in names}
    return as_frame(interactions, "observations")


def _is_nested(value: Any) -> bool:
    return isinstance(value, _NESTED) or (hasattr(value, "__iter__") and not isinstance(value, str | bytes))


def _columns(table: pl.DataFrame, index: RunIndex, origin: Origin) -> dict[str, pl.Series]:
    """By what they are for."""
    declared = index.run.data.schema.interactions
    names = {"user": declared.user, "item": declared.item, "time": declared.time, "event": None}
    columns = {}
    for purpose, name in names.items():
        chosen = purpose if purpose in table.columns else name
        if chosen in table.columns:
            columns[purpose] = table[chosen]
    for side in ("user", "item"):
        if side not in columns:
            raise DataError(
                f"{origin.name}: the columns are {', '.join(table.columns) or 'none'}; expected user, item and perhaps time "
                "and event."
            )
    others = [name for name in table.columns if name not in {column.name for column in columns.values()}]
    if others:
        what = f"the column '{others[0]}'" if len(others) == 1 else f"{len(others)} columns, the first '{others[0]}',"
        warnings.warn(f"{what} of the observations is not read; user, item, time and event are.", stacklevel=5)
    return columns


def _texts(values: pl.Series, origin: Origin, what: str) -> pl.Series:
    try:
        return as_text(values, origin)
    except SchemaError as error:
        raise DataError(f"{origin.name}: column '{values.name}' holds {values.dtype}; expected {what} in each row.") from error


def _ids(values: pl.Series, origin: Origin) -> list[str]:
    ids: list[str] = _texts(values, origin, "one id").to_list()
    empty = next((row for row, text in enumerate(ids) if text is None or not text.strip()), None)
    if empty is not None:
        where = origin.locate(empty)
        raise DataError(
            f"{where}: the column '{values.name}' is empty; every row needs a user and an item; none of these rows was kept."
        )
    return ids


def _refuse_impossible_times(times: list[Any], origin: Origin) -> None:
    """A row whose time the log cannot have would make the log unreadable."""
    wrong = next((row for row, time in enumerate(times) if time is not None and not is_time(time)), None)
    if wrong is not None:
        raise DataError(
            f"{origin.locate(wrong)}: the time {times[wrong]} is too large or no number; give one on the scale of the data's "
            "times; none of these rows was kept."
        )


def _refuse_unknown_items(items: list[str], index: RunIndex, origin: Origin) -> None:
    unknown = [item for item in dict.fromkeys(items) if item not in index.item_numbers]
    if unknown:
        others = f" (and {len(unknown) - 1:,} others are not)" if len(unknown) > 1 else ""
        raise DataError(
            f"{origin.locate(items.index(unknown[0]))}: the item '{unknown[0]}' is not in the catalogue{others}; give a table "
            "of new items beside the rows (items, --items) or add them first (gmlfm add-items); none of these rows was kept."
        )
