"""Which rows are trained, validated and tested on. Row numbers into the interactions, never copies."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from gmlfm.arguments import one_of, whole_number
from gmlfm.data.dataset import Dataset, Rows, Task
from gmlfm.data.split_cold_start import COLD_GROUPS, cold_start
from gmlfm.data.split_files import split_files
from gmlfm.data.split_parts import TEST, TRAIN, UNUSED, VALIDATION, Assignment, SplitView, check_shares, places_of_user
from gmlfm.data.split_rules import NO_TEST_NOTE, NO_TIME_NOTE, auto_split, repeats_note, time_cuts
from gmlfm.errors import DataError, OptionError, did_you_mean

__all__ = [
    "AUTO",
    "COLD_GROUPS",
    "NEWCOMER_GROUPS",
    "SPLITS",
    "TEST",
    "TRAIN",
    "UNUSED",
    "VALIDATION",
    "Split",
    "check_split",
    "default_split",
    "leave_last_out",
    "make_split",
    "random_parts",
]

AUTO = "auto"  # leave-one-out; by time where items sell once, at random where no time is declared
NEWCOMER_GROUPS = ("warm-warm", "warm-new", "new-warm", "new-new")


@dataclass(frozen=True, eq=False)
class Split:
    """Disjoint, ascending row numbers. `unused` rows are neither trained nor tested on (a newcomer's history).

    Groups, where a split has them, are user side then item side, as positions in `group_names`.
    """

    name: str
    train: Rows
    validation: Rows
    test: Rows
    unused: Rows
    options: Mapping[str, Any] = field(default_factory=dict)
    data_hash: str = ""
    group_names: tuple[str, ...] = ()
    validation_groups: npt.NDArray[np.int8] | None = None
    test_groups: npt.NDArray[np.int8] | None = None
    notes: tuple[str, ...] = ()
    # Candidate lists brought from outside (split `files`): (rows of the part, C) item numbers without the row's own item, -1
    # where a list is shorter.
    validation_candidates: npt.NDArray[np.int32] | None = None
    test_candidates: npt.NDArray[np.int32] | None = None

    @cached_property
    def hash(self) -> str:
        """Identifies the data, the split and the part of every row; runs record it."""
        metadata = json.dumps([self.data_hash, self.name, dict(self.options)], sort_keys=True)
        digest = hashlib.sha256(metadata.encode())
        for rows in (self.train, self.validation, self.test, self.unused):
            digest.update(f"|{len(rows)}|".encode())
            digest.update(rows.astype("<i8").tobytes())
        for lists in (self.validation_candidates, self.test_candidates):
            if lists is not None:
                digest.update(f"|{lists.shape}|".encode() + lists.astype("<i4").tobytes())
        return digest.hexdigest()[:16]


def check_split(name: str) -> None:
    one_of(name, "split", (AUTO, *SPLITS))


def default_split(data: Dataset, task: Task = "topn") -> tuple[str, str]:
    """The split that `auto` stands for, and why, in one sentence; empty where it is the usual one."""
    return auto_split(
        task,
        declares_time="time" in data.interactions.columns,
        has_all_times=data.has_all_times,
        sells_once=data.sells_once,
    )


def make_split(data: Dataset, name: str = AUTO, *, seed: int = 0, task: Task = "topn", **options: Any) -> Split:
    """Split the rows that `task` learns from. The names are the keys of SPLITS; options are those of its function."""
    check_split(name)
    reason = ""
    if name == AUTO:
        name, reason = default_split(data, task)
    allowed = list(inspect.signature(SPLITS[name]).parameters)[1:]
    for key in options:
        if key not in allowed:
            raise OptionError(f"the split '{name}' has no option '{key}'{did_you_mean(key, allowed)}")
    seed = whole_number(seed, "seed")
    rows = data.order_in_time(data.rows_for(task))
    view = SplitView(data, rows, data.user_numbers[rows], data.item_numbers[rows], np.random.default_rng(seed), task)
    assignment = SPLITS[name](view, **options)
    if reason:
        assignment.notes.insert(0, reason)
    assignment.notes.extend(_repeats_note(view, assignment.parts))
    by_part, groups = [], []
    for part in (TRAIN, VALIDATION, TEST, UNUSED):
        chosen = np.flatnonzero(assignment.parts == part)
        chosen = chosen[np.argsort(rows[chosen], kind="stable")]
        by_part.append(rows[chosen])
        groups.append(None if assignment.groups is None else assignment.groups[chosen])
    if len(by_part[TRAIN]) == 0:
        raise DataError(f"the split '{name}' leaves no training rows of {len(rows):,}; choose another split or other shares.")
    return Split(
        name,
        train=by_part[TRAIN],
        validation=by_part[VALIDATION],
        test=by_part[TEST],
        unused=by_part[UNUSED],
        options={"seed": seed, "task": task, **(options if assignment.options is None else assignment.options)},
        data_hash=data.content_hash,
        group_names=assignment.group_names,
        validation_groups=groups[VALIDATION],
        test_groups=groups[TEST],
        notes=tuple(assignment.notes),
        validation_candidates=assignment.validation_candidates,
        test_candidates=assignment.test_candidates,
    )


def _repeats_note(view: SplitView, parts: npt.NDArray[np.int8]) -> list[str]:
    """How many tested pairs are also trained on."""
    interactions = view.data.schema.interactions
    if interactions.repeats == "merge" and not interactions.context:
        return []
    pairs = view.users.astype(np.int64) * len(view.data.items) + view.items
    n_tested = int((parts == TEST).sum())
    n_trained = int(np.isin(pairs[parts == TEST], pairs[parts == TRAIN]).sum())
    return repeats_note(n_trained, n_tested, interactions.repeats)


def random_parts(n: int, validation: float, test: float, rng: np.random.Generator) -> npt.NDArray[np.int8]:
    """A seeded random part for each of n rows, in exact shares (rounded)."""
    check_shares(validation=validation, test=test)
    parts = np.zeros(n, np.int8)
    shuffled = rng.permutation(n)
    n_validation, n_test = round(n * validation), round(n * test)
    parts[shuffled[:n_validation]] = VALIDATION
    parts[shuffled[n_validation : n_validation + n_test]] = TEST
    return parts


def leave_last_out(users: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.int8]:
    """Of each user's rows the last is TEST, the one before it VALIDATION, the others TRAIN; fewer than three all TRAIN.

    users: the user number of each row, rows in the order of time. Returns each row's part.
    """
    from_first, from_last = places_of_user(users)
    parts = np.where(from_last == 0, TEST, np.where(from_last == 1, VALIDATION, TRAIN))
    return np.where(from_first + from_last >= 2, parts, TRAIN).astype(np.int8)


def _random(view: SplitView, validation: float = 0.2, test: float = 0.1) -> Assignment:
    return Assignment(random_parts(len(view.rows), validation, test, view.rng))


def _leave_one_out(view: SplitView) -> Assignment:
    assignment = Assignment(np.zeros(len(view.rows), np.int8))
    _hold_out_last(view, np.ones(len(view.rows), bool), assignment)
    if "time" not in view.data.interactions.columns:
        assignment.notes.append(NO_TIME_NOTE)
    return assignment


def _hold_out_last(view: SplitView, eligible: npt.NDArray[np.bool_], assignment: Assignment) -> None:
    """leave_last_out over the eligible rows alone, with a note on users who have too few."""
    users = view.users[eligible]
    parts = leave_last_out(users)
    assignment.parts[eligible] = parts
    n_short = len(np.unique(users)) - int((parts == TEST).sum())
    if n_short:
        assignment.notes.append(f"{n_short:,} users have fewer than 3 rows: all theirs are trained on, none tested.")


def _global_time(view: SplitView, validation: float = 0.1, test: float = 0.1) -> Assignment:
    """Cut at two moments; rows of the same moment stay together, on the earlier side."""
    check_shares(validation=validation, test=test)
    times = view.times("global-time")
    last_train, last_validation = (times[place] for place in time_cuts(len(times), validation, test))
    parts = np.where(times <= last_train, TRAIN, np.where(times <= last_validation, VALIDATION, TEST)).astype(np.int8)
    assignment = Assignment(parts)
    if TEST not in parts:
        assignment.notes.append(NO_TEST_NOTE)
    return assignment


def _newcomers(view: SplitView, share: float = 0.1, validation_share: float = 0.05) -> Assignment:
    """A share of users and of items is unseen in training, one set for validation and another for test.

    Tested are: the latest row of each new user with a warm item (new-warm), every row of a new item by a warm user
    (warm-new) or by a new one (new-new), and the latest row of each warm user (warm-warm). A new user's other rows are
    unused: they are the history that a newcomer may bring.
    """
    check_shares(share=share, validation_share=validation_share)
    user_parts = _pick_newcomers(view.data.users.ids, view.users, share, validation_share, view.rng)[view.users]
    item_parts = _pick_newcomers(view.data.items.ids, view.items, share, validation_share, view.rng)[view.items]
    warm_user, warm_item = user_parts == TRAIN, item_parts == TRAIN
    assignment = Assignment(np.full(len(view.rows), UNUSED, np.int8), group_names=NEWCOMER_GROUPS)
    _hold_out_last(view, warm_user & warm_item, assignment)
    new_with_warm = np.flatnonzero(~warm_user & warm_item)
    latest = new_with_warm[places_of_user(view.users[new_with_warm])[1] == 0]
    assignment.parts[latest] = user_parts[latest]
    of_new_item = ~warm_item & (warm_user | (user_parts == item_parts))
    assignment.parts[of_new_item] = item_parts[of_new_item]
    # Warm is who and what training has met: holding out the last rows may have left an item, or a user, without any.
    is_train = assignment.parts == TRAIN
    new_user, new_item = (~np.isin(side, side[is_train]) for side in (view.users, view.items))
    assignment.groups = (2 * new_user + new_item).astype(np.int8)
    return assignment


def _pick_newcomers(
    ids: pl.Series, numbers: npt.NDArray[np.int32], share: float, validation_share: float, rng: np.random.Generator
) -> npt.NDArray[np.int8]:
    """The part of each entity: TRAIN if warm, else the part in which it is new. `numbers`: the entity of each row."""
    # Drawn over sorted ids: the choice must not depend on the order of the file.
    seen = np.unique(numbers)
    seen = seen[ids[seen].arg_sort().to_numpy()]
    parts = np.zeros(len(ids), np.int8)
    parts[seen] = random_parts(len(seen), validation_share, share, rng)
    return parts


def _none(view: SplitView) -> Assignment:
    return Assignment(np.zeros(len(view.rows), np.int8))


SPLITS: dict[str, Callable[..., Assignment]] = {
    "leave-one-out": _leave_one_out,
    "random": _random,
    "global-time": _global_time,
    "newcomers": _newcomers,
    "cold-start": cold_start,
    "files": split_files,
    "none": _none,
}
