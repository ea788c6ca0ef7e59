"""A run trained on with what is new: of tables, or of what users were observed to do."""

from __future__ import annotations

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
from gmlfm.recommender.forgotten import Forgotten
from gmlfm.recommender.observed_data import observed_data, part_of
from gmlfm.recommender.state import State
from gmlfm.runs.event_lines import ObservedRow
from gmlfm.training.trainer import Observer


def updated(
    state: State,
    data: Any,
    options: UpdateOptions,
    device: str,
    observer: Observer | None,
    forgotten: Forgotten,
) -> tuple[FittedRun, UpdateReport, list[ObservedRow]]:
    """The run trained on, what was done, and the observed rows that are part of its data now."""
    run = state.run
    check_updatable(run)
    observed = list(state.observed.rows())
    if data is None:
        observed = _learnable(state, forgotten, observed)
        other: Any = observed_data(state.index, observed)
    else:
        other = forgotten.left_out_of(as_dataset(run, data))
    with activity("comparing rows"):
        grown = grown_data(run.data, other)
    # What the data did not take, such as an event of a kind that they do not know, stays observed.
    learned = part_of(grown.data, run.data, observed)
    return *update(run, grown, options, device, observer), learned


def _learnable(state: State, forgotten: Forgotten, rows: list[ObservedRow]) -> list[ObservedRow]:
    """Of items of the catalogue. Whoever was forgotten and came back stays out of the data, from which a later load would take
    them; what they did since counts as observed."""
    if not rows:
        raise DataError(
            "nothing was observed since the run was trained or updated, so there is nothing new to learn; give data."
        )
    gone = set(forgotten.among({row[0] for row in rows}))
    chosen = [row for row in rows if row[1] in state.index.item_numbers and row[0] not in gone]
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
