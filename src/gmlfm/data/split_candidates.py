"""Candidate lists of a published split: the items among which each held-out row's own item is ranked."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from gmlfm.data.dataset import Dataset, Rows
from gmlfm.data.split_reading import CANDIDATE, SplitTable, id_numbers
from gmlfm.errors import DataError


def candidate_lists(
    table: SplitTable, data: Dataset, name: str, rows: Rows, left_out: npt.NDArray[np.int64]
) -> npt.NDArray[np.int32]:
    """(R, C) item numbers for the R rows of the part `name`, in the order of the table; -1 where a list is shorter.

    The row's own item is not of its list. Rows of one pair share the pair's list. left_out: pairs (user * items + item) of
    the part that the task does not test; their lists are passed over.
    """
    spec, n_items = data.schema.interactions, len(data.items)
    users, targets = id_numbers(table, spec.user, data.users, "user"), id_numbers(table, spec.item, data.items, "item")
    candidates = id_numbers(table, CANDIDATE, data.items, CANDIDATE)
    pairs = users * n_items + targets
    row_pairs = data.user_numbers[rows].astype(np.int64) * n_items + data.item_numbers[rows]
    tested, pair_of_row = np.unique(row_pairs, return_inverse=True)

    def refuse(is_wrong: npt.NDArray[np.bool_], problem: str, remedy: str) -> None:
        if is_wrong.any():
            row = int(is_wrong.argmax())
            user, item = data.users.ids[int(users[row])], data.items.ids[int(targets[row])]
            candidate = data.items.ids[int(candidates[row])]
            raise DataError(
                f"{table.origin.locate(row)}: the list of user {user!r} and item {item!r} {problem.format(repr(candidate))}; "
                f"{remedy}."
            )

    is_tested = np.isin(pairs, tested)
    refuse(~is_tested & ~np.isin(pairs, left_out), f"is of no {name} row", f"give lists for the {name} rows alone")
    refuse(candidates == targets, "holds that item itself, {}", "a list holds the others alone")
    _, list_number = np.unique(pairs, return_inverse=True)
    _, earliest = np.unique(list_number * n_items + candidates, return_index=True)
    is_repeated = np.ones(len(pairs), bool)
    is_repeated[earliest] = False
    refuse(is_repeated, "holds the candidate {} again", "name each once")

    kept = np.flatnonzero(is_tested)
    list_of_candidate = np.searchsorted(tested, pairs[kept])
    lengths = np.bincount(list_of_candidate, minlength=len(tested))
    if (lengths == 0).any():
        without = rows[lengths[pair_of_row] == 0]
        user, item = data.users.ids[int(data.user_numbers[without[0]])], data.items.ids[int(data.item_numbers[without[0]])]
        raise DataError(
            f"{table.origin.name} has no list for {len(without):,} of {len(rows):,} {name} rows, such as user {user!r} and "
            f"item {item!r}; every {name} row needs candidates."
        )
    order = np.argsort(list_of_candidate, kind="stable")
    column = np.arange(len(order)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    lists = np.full((len(tested), int(lengths.max(initial=0))), -1, np.int32)
    lists[list_of_candidate[order], column] = candidates[kept][order]
    return lists[pair_of_row]


def candidates_note(lists: npt.NDArray[np.int32], data: Dataset, name: str, rows: Rows, train: Rows) -> str:
    """How long a part's lists are, and how many of their candidates are training pairs of the same user."""
    lengths = (lists >= 0).sum(axis=1)
    shortest, longest = int(lengths.min()), int(lengths.max())
    length = f"{longest:,}" if shortest == longest else f"{shortest:,} to {longest:,}"
    users = np.repeat(data.user_numbers[rows].astype(np.int64), lengths)
    trained = data.user_numbers[train].astype(np.int64) * len(data.items) + data.item_numbers[train]
    pairs = pl.Series(users * len(data.items) + lists[lists >= 0])
    n_trained = int(pairs.is_in(pl.Series(trained).implode()).sum())
    more = f"; {n_trained:,} of these candidates are training pairs of their user" if n_trained else ""
    return f"{name} rows are ranked among the lists that were brought, of {length} candidates each{more}."
