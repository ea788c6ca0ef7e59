"""A run trained on with what is new: of tables, or of what users were observed to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gmlfm.arguments import shown
from gmlfm.data.dataset import Dataset
from gmlfm.data.growing import grown_data
from gmlfm.data.interop import is_table
from gmlfm.data.prepared import PreparedData
from gmlfm.errors import DataError, OptionError
from gmlfm.fitting import FittedRun
from gmlfm.fitting.update import UpdateOptions, UpdateReport, check_updatable, update
from gmlfm.progress import activity
from gmlfm.recommender.observed_data import observed_data, part_of
from gmlfm.recommender.state import State
from gmlfm.runs import RunFolder
from gmlfm.runs.event_lines import ObservedRow
from gmlfm.training.trainer import Observer

WithoutForgotten = Callable[[Dataset, RunFolder], Any]


def updated(
    state: State,
    folder: RunFolder | None,
    data: Any,
    options: UpdateOptions,
    device: str,
    observer: Observer | None,
    without_forgotten: WithoutForgotten,
) -> tuple[FittedRun, UpdateReport, list[ObservedRow]]:
    """The run trained on, what was done, and the observed rows that are part of its data now."""
    run = state.run
    check_updatable(run)
    observed = list(state.observed.rows())
    if data is None:
        chosen = _learnable(state, folder, observed)
        other = observed_data(state.index, chosen)
    else:
        other = as_dataset(run, data)
        if folder is not None:
            other = without_forgotten(other, folder)
    with activity("comparing rows"):
        grown = grown_data(run.data, other)
    learned = chosen if data is None else part_of(grown.data, run.data, observed)
    return *update(run, grown, options, device, observer), learned


def _learnable(state: State, folder: RunFolder | None, rows: list[ObservedRow]) -> list[ObservedRow]:
    """Of items of the catalogue. Whoever was forgotten and came back stays out of the data, from which a later load would take
    them; what they did since counts as observed."""
    if not rows:
        raise DataError(
            "nothing was observed since the run was trained or updated, so there is nothing new to learn; give data."
        )
    forgotten = set() if folder is None else set(folder.forgotten_among({row[0] for row in rows}))
    chosen = [row for row in rows if row[1] in state.index.item_numbers and row[0] not in forgotten]
    if not chosen:
        raise DataError("what was observed is of users who were forgotten or items that are unknown; nothing was changed.")
    return chosen


def as_dataset(run: FittedRun, data: Any) -> Dataset:
    """A Dataset as it is; a table of interactions, by the columns that the run's data had."""
    if isinstance(data, PreparedData):
        raise OptionError(f"update reads data in memory, and {data.folder} is prepared; train it anew.")
    if isinstance(data, Dataset):
        return data
    if not is_table(data):
        raise OptionError(
            f"update takes a Dataset or a table of interactions, not {shown(data)}; load_dataset makes one of a path."
        )
    schema = run.data.schema
    bare = replace(schema, users=None, items=None, min_count={})
    return replace(Dataset.from_tables(data, schema=bare), schema=schema)
