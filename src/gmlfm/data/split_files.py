"""The split `files`: the rows of each part, and candidate lists, as somebody else published them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from gmlfm.data.columns import as_field
from gmlfm.data.dataset import Dataset, Rows
from gmlfm.data.split_candidates import candidate_lists, candidates_note
from gmlfm.data.split_parts import TEST, TRAIN, UNUSED, VALIDATION, Assignment, SplitView
from gmlfm.data.split_reading import SplitTable, id_numbers, read_candidates, read_rows
from gmlfm.data.times import as_times
from gmlfm.errors import DataError, OptionError

_PARTS = {"train": TRAIN, "validation": VALIDATION, "test": TEST}
_UNNAMED = -1


def split_files(
    view: SplitView,
    train: Any = None,
    validation: Any = None,
    test: Any = None,
    validation_candidates: Any = None,
    test_candidates: Any = None,
) -> Assignment:
    """Each argument is the path of a table or a table. Their content's hashes are recorded, never their paths.

    A row of a part names an interaction of the data by user and item and, where a pair has several rows, by the time and the
    context as far as the table has these columns. Rows that no table names are trained on where train is not given, else
    unused.
    """
    sources = {"train": train, "validation": validation, "test": test}
    lists = {"validation": validation_candidates, "test": test_candidates}
    _check_request(view, sources, lists)
    data = view.data
    is_of_task = np.zeros(data.n_interactions, bool)
    is_of_task[view.rows] = True
    part_of_row = np.full(data.n_interactions, _UNNAMED, np.int8)
    named: dict[str, _NamedRows] = {}
    notes: list[str] = []
    for name, source in sources.items():
        if source is None:
            continue
        named[name] = rows_named(read_rows(source, name, data), data)
        _refuse_two_parts(data, name, named, part_of_row)
        part_of_row[named[name].rows] = _PARTS[name]
        notes += _notes_on_rows(view, name, named[name], is_of_task)
    n_unnamed = int((part_of_row[view.rows] == _UNNAMED).sum())
    if train is not None and n_unnamed:
        notes.append(f"{n_unnamed:,} rows of the data are in no file: they are neither trained nor tested on.")
    if validation is None:
        notes.append("no validation rows are given: every epoch is trained and none is chosen.")
    parts = part_of_row[view.rows]
    parts[parts == _UNNAMED] = TRAIN if train is None else UNUSED
    assignment = Assignment(parts, notes=notes)
    digests = {name: rows.table.sha256 for name, rows in named.items()}
    for name, source in lists.items():
        if source is None:
            continue
        table = read_candidates(source, name, data)
        digests[f"{name}_candidates"] = table.sha256
        rows = named[name].rows
        left_out = rows[~is_of_task[rows]]
        left_out_pairs = data.user_numbers[left_out].astype(np.int64) * len(data.items) + data.item_numbers[left_out]
        rows = np.sort(rows[is_of_task[rows]])
        candidates = candidate_lists(table, data, name, rows, left_out_pairs)
        if len(rows):
            notes.append(candidates_note(candidates, data, name, rows, view.rows[parts == TRAIN]))
        if name == "test":
            assignment.test_candidates = candidates
        else:
            assignment.validation_candidates = candidates
    assignment.options = {name: f"sha256:{digest}" for name, digest in digests.items()}
    return assignment


def _check_request(view: SplitView, sources: dict[str, Any], lists: dict[str, Any]) -> None:
    if view.task == "implicit":
        raise OptionError("the task 'implicit' splits its drawn instances at random, 70/20/10; 'files' cannot be asked for.")
    if all(source is None for source in sources.values()):
        raise OptionError(
            "the split 'files' got no rows; give the table of test, and those of validation and train where they are published."
        )
    for name, source in lists.items():
        if source is not None and view.task != "topn":
            raise OptionError(f"{name}_candidates are lists to rank, but the task '{view.task}' ranks nothing; leave them out.")
        if source is not None and sources[name] is None:
            raise OptionError(f"{name}_candidates are given without {name} rows; give the table of {name}, too.")


@dataclass(frozen=True)
class _NamedRows:
    """The data's rows that a table names, and the place in the table that names each."""

    table: SplitTable
    rows: Rows
    places: npt.NDArray[np.int64]
    n_repeated: int


def rows_named(table: SplitTable, data: Dataset) -> _NamedRows:
    """The rows of the data that a table names, each once; what cannot be told or does not exist is refused."""
    spec, n_items = data.schema.interactions, len(data.items)
    users, items = id_numbers(table, spec.user, data.users, "user"), id_numbers(table, spec.item, data.items, "item")
    pairs = users * n_items + items
    data_pairs = data.user_numbers.astype(np.int64) * n_items + data.item_numbers
    known, counts = np.unique(data_pairs, return_counts=True)
    position = np.minimum(np.searchsorted(known, pairs), len(known) - 1)
    is_known = known[position] == pairs
    if not is_known.all():
        place = int((~is_known).argmax())
        raise DataError(
            f"{_place(table, data, place, pairs[place])} are no interaction of the data "
            f"({int((~is_known).sum()):,} such rows); a split's rows must all be in the data."
        )
    held = pl.DataFrame({"pair": data_pairs, "row": np.arange(len(data_pairs))})
    wanted = pl.DataFrame({"pair": pairs, "place": np.arange(len(pairs))})
    keys = ["pair"]
    has_several = counts[position] > 1
    if has_several.any():
        table_columns, data_columns = _occasion_of_table(table, data), _occasion_of_data(data)
        data_has_several = counts[np.searchsorted(known, data_pairs)] > 1
        for name, values in table_columns.items():
            other = data_columns[name]
            wanted = wanted.with_columns(_as_key(values, other, has_several).alias(name))
            held = held.with_columns(_as_key(other, values, data_has_several).alias(name))
        keys += list(table_columns)
    groups = wanted.group_by(keys, maintain_order=True).agg("place")
    matched = groups.join(held.group_by(keys).agg("row"), on=keys, how="left", nulls_equal=True, maintain_order="left")
    return _matched_rows(table, data, matched.with_columns(n_named=pl.col("place").list.len(), n_held=pl.col("row").list.len()))


def _matched_rows(table: SplitTable, data: Dataset, matched: pl.DataFrame) -> _NamedRows:
    """matched, for each distinct key of the table: pair, place (a list), row (a list; null: none), n_named and n_held."""
    keeps = data.schema.interactions.repeats == "keep"
    wrong = matched.filter(
        pl.col("n_held").is_null() | (pl.col("n_named") < pl.col("n_held")) | (keeps & (pl.col("n_named") > pl.col("n_held")))
    )
    if wrong.height:
        pair, places, _, n_named, n_held = wrong.select("pair", "place", "row", "n_named", "n_held").row(0)
        where = _place(table, data, places[0], pair)
        spec = data.schema.interactions
        columns = [name for name in (spec.time, *(field.name for field in spec.context)) if name is not None]
        if n_held is None:
            given = " and ".join(f"'{name}'" for name in columns if name in table.frame.columns)
            raise DataError(f"{where} are interactions of the data, but none with this {given}; write it as in the data.")
        if n_named > n_held:
            raise DataError(f"{where} are named {n_named} times, but the data have {n_held} such row(s); name each row once.")
        absent = " or ".join(f"'{name}'" for name in columns if name not in table.frame.columns)
        remedy = (
            f"add the column {absent}" if absent else "nothing in the data tells them apart, so name all of them in one part"
        )
        raise DataError(f"{where} are {n_held} rows of the data, of which the table names {n_named}: {remedy}.")
    pairs = matched.select(pl.col("place").list.head(pl.col("n_held")), "row").explode("place", "row")
    n_repeated = int((matched["n_named"].cast(pl.Int64) - matched["n_held"].cast(pl.Int64)).sum())
    return _NamedRows(table, pairs["row"].to_numpy().astype(np.int64), pairs["place"].to_numpy().astype(np.int64), n_repeated)


def _occasion_of_table(table: SplitTable, data: Dataset) -> dict[str, pl.Series]:
    """The columns of time and context that the table has, in the form of the data's."""
    spec, frame = data.schema.interactions, table.frame
    columns = {}
    if spec.time is not None and spec.time in frame.columns:
        columns["time"] = as_times(frame[spec.time], table.origin, spec.time_format)
    for field in spec.context:
        if field.name in frame.columns:
            columns[f"context {field.name}"] = as_field(frame[field.name], field, table.origin, spec.read.decimal)
    return columns


def _occasion_of_data(data: Dataset) -> dict[str, pl.Series]:
    times = {"time": data.interactions["time"]} if "time" in data.interactions.columns else {}
    return {**times, **{f"context {column.name}": column for column in data.context.iter_columns()}}


def _as_key(values: pl.Series, other: pl.Series, matters: npt.NDArray[np.bool_]) -> pl.Series:
    """In a form to be compared with the other side's, null in rows where it does not matter: a pair with one row needs no
    occasion. Sets are their sorted members, times numbers of one type."""
    if isinstance(values.dtype, pl.List):
        values = values.list.sort().list.join("\x1f")
    elif values.dtype != other.dtype:
        values = values.cast(pl.Float64)
    return values.set(pl.Series(~matters), None)


def _refuse_two_parts(data: Dataset, name: str, named: dict[str, _NamedRows], part_of_row: npt.NDArray[np.int8]) -> None:
    rows = named[name]
    taken = np.flatnonzero(part_of_row[rows.rows] != _UNNAMED)
    if not len(taken):
        return
    index = taken[np.argmin(rows.places[taken])]
    row = int(rows.rows[index])
    other = next(part for part, number in _PARTS.items() if number == part_of_row[row])
    place = int(named[other].places[np.flatnonzero(named[other].rows == row)[0]])
    pair = int(data.user_numbers[row]) * len(data.items) + int(data.item_numbers[row])
    merged = (
        ' (rows of a pair are merged; repeats = "keep" keeps them apart)' if data.schema.interactions.repeats == "merge" else ""
    )
    raise DataError(
        f"{_place(rows.table, data, int(rows.places[index]), pair)} are a row of {other} already "
        f"({named[other].table.origin.locate(place)}; {len(taken):,} such rows): an interaction belongs to one part{merged}."
    )


def _notes_on_rows(view: SplitView, name: str, named: _NamedRows, is_of_task: npt.NDArray[np.bool_]) -> list[str]:
    notes = []
    n_other = int((~is_of_task[named.rows]).sum())
    if n_other:
        what = "have no label" if view.task == "rating" else "are no positives"
        notes.append(f"{n_other:,} of {len(named.rows):,} {name} rows {what} and are left out.")
    if named.n_repeated:
        notes.append(f'{named.n_repeated:,} {name} rows name an interaction again and count once (repeats = "merge").')
    return notes


def _place(table: SplitTable, data: Dataset, place: int, pair: int) -> str:
    """The beginning of a message: where, and of which user and item."""
    user, item = divmod(int(pair), len(data.items))
    return f"{table.origin.locate(place)}: user {data.users.ids[user]!r} and item {data.items.ids[item]!r}"
