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

from gmlfm.data.dataset import Dataset, Rows, Task
from gmlfm.errors import DataError, OptionError, did_you_mean

NEWCOMER_GROUPS = ("warm-warm", "warm-new", "new-warm", "new-new")
COLD_GROUPS = ("W-W", "W-C", "C-W", "C-C")


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

    @cached_property
    def hash(self) -> str:
        """Identifies the data, the split and the part of every row; runs record it."""
        metadata = json.dumps([self.data_hash, self.name, dict(self.options)], sort_keys=True)
        digest = hashlib.sha256(metadata.encode())
        for rows in (self.train, self.validation, self.test, self.unused):
            digest.update(f"|{len(rows)}|".encode())
            digest.update(rows.astype("<i8").tobytes())
        return digest.hexdigest()[:16]


@dataclass(frozen=True)
class _View:
    """The task's rows as columns, in the order of time, then of the file."""

    data: Dataset
    rows: Rows
    users: npt.NDArray[np.int32]
    items: npt.NDArray[np.int32]
    rng: np.random.Generator

    def times(self, name: str) -> npt.NDArray[Any]:
        if "time" not in self.data.interactions.columns:
            raise DataError(
                f"the split '{name}' needs times, but dataset '{self.data.name}' declares none; set [interactions] time."
            )
        times = self.data.interactions["time"]
        if times.null_count():
            raise DataError(f"the split '{name}' needs a time in every row; {times.null_count():,} rows have none.")
        return times.to_numpy()[self.rows]


@dataclass
class _Assignment:
    """A part for each row of a view: TRAIN, VALIDATION, TEST or UNUSED."""

    parts: npt.NDArray[np.int8]
    groups: npt.NDArray[np.int8] | None = None
    group_names: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)


TRAIN, VALIDATION, TEST, UNUSED = 0, 1, 2, 3


def make_split(data: Dataset, name: str = "leave-one-out", *, seed: int = 0, task: Task = "topn", **options: Any) -> Split:
    """Split the rows that `task` learns from. The names are the keys of SPLITS; options are those of its function."""
    if name not in SPLITS:
        raise OptionError(f"split is '{name}'{did_you_mean(name, SPLITS)}")
    allowed = list(inspect.signature(SPLITS[name]).parameters)[1:]
    for key in options:
        if key not in allowed:
            raise OptionError(f"the split '{name}' has no option '{key}'{did_you_mean(key, allowed)}")
    if seed < 0:
        raise OptionError(f"seed is {seed}; expected 0 or more.")
    rows = data.order_in_time(data.rows_for(task))
    view = _View(data, rows, data.user_numbers[rows], data.item_numbers[rows], np.random.default_rng(seed))
    assignment = SPLITS[name](view, **options)
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
        options={"seed": seed, "task": task, **options},
        data_hash=data.content_hash,
        group_names=assignment.group_names,
        validation_groups=groups[VALIDATION],
        test_groups=groups[TEST],
        notes=tuple(assignment.notes),
    )


def random_parts(n: int, validation: float, test: float, rng: np.random.Generator) -> npt.NDArray[np.int8]:
    """A seeded random part for each of n rows, in exact shares (rounded)."""
    _check_shares(validation=validation, test=test)
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
    from_first, from_last = _places(users)
    parts = np.where(from_last == 0, TEST, np.where(from_last == 1, VALIDATION, TRAIN))
    return np.where(from_first + from_last >= 2, parts, TRAIN).astype(np.int8)


def _places(users: npt.NDArray[np.integer[Any]]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Each row's place among the rows of its user, counted from the first and from the last, both from 0."""
    by_user = np.argsort(users, kind="stable")
    starts = np.flatnonzero(np.diff(users[by_user], prepend=-1))
    lengths = np.diff(np.append(starts, len(users)))
    from_first, from_last = np.empty(len(users), np.int64), np.empty(len(users), np.int64)
    from_first[by_user] = np.arange(len(users)) - np.repeat(starts, lengths)
    from_last[by_user] = np.repeat(lengths, lengths) - 1 - from_first[by_user]
    return from_first, from_last


def _random(view: _View, validation: float = 0.2, test: float = 0.1) -> _Assignment:
    return _Assignment(random_parts(len(view.rows), validation, test, view.rng))


def _leave_one_out(view: _View) -> _Assignment:
    assignment = _Assignment(np.zeros(len(view.rows), np.int8))
    _hold_out_last(view, np.ones(len(view.rows), bool), assignment)
    if "time" not in view.data.interactions.columns:
        assignment.notes.append("no time is declared: the order of the file decides which row is the latest.")
    return assignment


def _hold_out_last(view: _View, eligible: npt.NDArray[np.bool_], assignment: _Assignment) -> None:
    """leave_last_out over the eligible rows alone, with a note on users who have too few."""
    users = view.users[eligible]
    parts = leave_last_out(users)
    assignment.parts[eligible] = parts
    n_short = len(np.unique(users)) - int((parts == TEST).sum())
    if n_short:
        assignment.notes.append(f"{n_short:,} users have fewer than 3 rows: all theirs are trained on, none tested.")


def _global_time(view: _View, validation: float = 0.1, test: float = 0.1) -> _Assignment:
    """Cut at two moments; rows of the same moment stay together, on the earlier side."""
    _check_shares(validation=validation, test=test)
    times = view.times("global-time")
    n = len(times)
    last_train, last_validation = (times[max(round(n * share) - 1, 0)] for share in (1 - validation - test, 1 - test))
    parts = np.where(times <= last_train, TRAIN, np.where(times <= last_validation, VALIDATION, TEST)).astype(np.int8)
    assignment = _Assignment(parts)
    if TEST not in parts:
        assignment.notes.append("no row is later than the second cut: the times are too much alike for a test part.")
    return assignment


def _newcomers(view: _View, share: float = 0.1, validation_share: float = 0.05) -> _Assignment:
    """A share of users and of items is unseen in training, one set for validation and another for test.

    Tested are: the latest row of each new user with a warm item (new-warm), every row of a new item by a warm user
    (warm-new) or by a new one (new-new), and the latest row of each warm user (warm-warm). A new user's other rows are
    unused: they are the history that a newcomer may bring.
    """
    _check_shares(share=share, validation_share=validation_share)
    user_parts = _pick_newcomers(view.data.users.ids, view.users, share, validation_share, view.rng)[view.users]
    item_parts = _pick_newcomers(view.data.items.ids, view.items, share, validation_share, view.rng)[view.items]
    warm_user, warm_item = user_parts == TRAIN, item_parts == TRAIN
    groups = (2 * ~warm_user + ~warm_item).astype(np.int8)
    assignment = _Assignment(np.full(len(view.rows), UNUSED, np.int8), groups, NEWCOMER_GROUPS)
    _hold_out_last(view, warm_user & warm_item, assignment)
    new_with_warm = np.flatnonzero(~warm_user & warm_item)
    latest = new_with_warm[_places(view.users[new_with_warm])[1] == 0]
    assignment.parts[latest] = user_parts[latest]
    of_new_item = ~warm_item & (warm_user | (user_parts == item_parts))
    assignment.parts[of_new_item] = item_parts[of_new_item]
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


def _cold_start(
    view: _View,
    ratings: int = 20,
    adapt: int = 15,
    interactions: int | None = None,
    warm_time: float = 0.8,
    warm_items: int = 10,
    test_share: float = 0.2,
    validation_share: float = 0.1,
) -> _Assignment:
    """The four groups of the paper's cold-start figure, after the MAMO paper.

    Selected are the first `ratings` rows of users with `ratings` or more. A user is cold when the first of
    them is later than the time by which `warm_time` of all rows were made; an item is warm with more than `warm_items` of
    the selected rows.
    Tested users: `test_share` of the warm ones and all cold ones less `validation_share`, which serve validation. Of
    theirs the first `adapt` rows (or only `interactions` of these) are trained on and the rest are scored; of all other
    users every selected row is trained on.
    """
    interactions = adapt if interactions is None else interactions
    if not 0 < adapt < ratings or not 0 <= interactions <= adapt:
        raise OptionError(
            f"cold-start got ratings={ratings}, adapt={adapt}, interactions={interactions}; "
            "expected 0 < adapt < ratings and 0 <= interactions <= adapt."
        )
    _check_shares(test_share=test_share, validation_share=validation_share)
    if not 0 < warm_time < 1:
        raise OptionError(f"warm_time is {warm_time}; expected a share above 0 and below 1.")
    times = view.times("cold-start")
    from_first, from_last = _places(view.users)
    selected = (from_first + from_last + 1 >= ratings) & (from_first < ratings)
    if not selected.any():
        raise DataError(f"the split 'cold-start' needs users with {ratings} rows or more; there are none.")
    moment = np.quantile(times, warm_time, method="inverted_cdf")
    cold_user = np.zeros(len(view.data.users), bool)
    cold_user[view.users[selected & (from_first == 0) & (times > moment)]] = True
    cold_item = np.bincount(view.items[selected], minlength=len(view.data.items)) <= warm_items
    role = np.zeros(len(view.data.users), np.int8)
    ids = view.data.users.ids
    for is_cold, share in ((False, test_share), (True, 1.0 - validation_share)):
        members = np.unique(view.users[selected & (cold_user[view.users] == is_cold)])
        members = members[ids[members].arg_sort().to_numpy()]
        shuffled = view.rng.permutation(members)
        n_validation = round(len(members) * validation_share)
        role[shuffled[:n_validation]] = VALIDATION
        role[shuffled[n_validation : n_validation + round(len(members) * share)]] = TEST
    row_role = role[view.users]
    parts = np.where(
        row_role == TRAIN, TRAIN, np.where(from_first < interactions, TRAIN, np.where(from_first < adapt, UNUSED, row_role))
    )
    groups = (2 * cold_user[view.users] + cold_item[view.items]).astype(np.int8)
    assignment = _Assignment(np.where(selected, parts, UNUSED).astype(np.int8), groups, COLD_GROUPS)
    users, items = np.unique(view.users[selected]), np.unique(view.items[selected])
    n_cold, n_cold_items = int(cold_user[users].sum()), int(cold_item[items].sum())
    assignment.notes.append(
        f"{len(users) - n_cold:,} warm and {n_cold:,} cold users, "
        f"{len(items) - n_cold_items:,} warm and {n_cold_items:,} cold items."
    )
    n_short = len(np.unique(view.users)) - len(users)
    if n_short:
        assignment.notes.append(f"{n_short:,} users have fewer than {ratings} rows and take no part.")
    return assignment


def _none(view: _View) -> _Assignment:
    return _Assignment(np.zeros(len(view.rows), np.int8))


SPLITS: dict[str, Callable[..., _Assignment]] = {
    "leave-one-out": _leave_one_out,
    "random": _random,
    "global-time": _global_time,
    "newcomers": _newcomers,
    "cold-start": _cold_start,
    "none": _none,
}


def _check_shares(**shares: float) -> None:
    for name, share in shares.items():
        if not 0 <= share < 1:
            raise OptionError(f"{name} is {share}; expected a share of at least 0 and below 1.")
    if sum(shares.values()) >= 1:
        names = " + ".join(shares)
        raise OptionError(f"{names} is {sum(shares.values()):g}; their sum must stay below 1, or nothing is left to train on.")
