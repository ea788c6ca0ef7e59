"""The newcomer's curve: the same targets, a new user's eleventh row, with the last 0, 1, 3, 5 or 10 rows before it given.

A newcomer is a user of the tested part of whom nothing was learned. Of each the target is the first positive row with as many
rows before it as the longest history asks for, by the data's rule for equal times; rows of items that nothing was learned of
count neither as targets nor as history. Candidates are those of the split's part (candidates.py), the same for every length:
none of the user's positives, so that what is given and what is held back are alike left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from gmlfm.arguments import one_of, shown
from gmlfm.data.dataset import Dataset, Rows
from gmlfm.data.encoding import Encoded
from gmlfm.data.histories import Histories, History, gathered, is_ordered
from gmlfm.data.splits import Split
from gmlfm.errors import DataError, OptionError
from gmlfm.escaping import terminal_text
from gmlfm.evaluation.candidates import Candidates
from gmlfm.evaluation.protocols import Evaluation
from gmlfm.models.base import Floats, Ints, Model, UserSide

COUNTS = (0, 1, 3, 5, 10)
MOST_GIVEN = 1_000  # rows of a history


@dataclass(frozen=True)
class NewcomerCurve:
    """points: by the number of rows given, the evaluation with that many; baseline: popularity, to which they are all alike."""

    points: dict[int, Evaluation]
    baseline: Evaluation

    @property
    def notes(self) -> tuple[str, ...]:
        return next(iter(self.points.values())).notes

    def metric(self, name: str) -> dict[int, float]:
        """A metric's mean by the number of rows given."""
        return {count: evaluation.metrics[name] for count, evaluation in self.points.items()}

    def __str__(self) -> str:
        parts = {**{str(count): point for count, point in self.points.items()}, "popularity": self.baseline}
        first = next(iter(self.points.values()))
        lines = ["".join([f"{'rows given':<16}", *(f"{heading:>12}" for heading in parts)])]
        for name in first.queries:
            lines.append("".join([f"{name:<16}", *(f"{part.metrics[name]:>12.4f}" for part in parts.values())]))
        caption = f"{first.protocol}: a target of each of {len(first.rows):,} newcomers"
        return "\n".join([caption, *lines, *(terminal_text(note) for note in self.notes)])


@dataclass(frozen=True)
class Targets:
    """A tested row of each newcomer (N,), ascending, and what they did before it."""

    rows: Rows
    history: History


def checked_counts(counts: Sequence[int]) -> tuple[int, ...]:
    """Numbers of given rows, distinct and ascending."""
    are_counts = all(isinstance(count, int | np.integer) and 0 <= count <= MOST_GIVEN for count in counts)
    if len(counts) == 0 or not are_counts or any(isinstance(count, bool) for count in counts):
        raise OptionError(f"counts is {shown(counts)}; expected whole numbers from 0 to {MOST_GIVEN:,}, such as 0,1,3,5,10.")
    return tuple(sorted({int(count) for count in counts}))


def newcomer_targets(data: Dataset, split: Split, part: str, learned: Rows, n_before: int) -> Targets:
    """Of each newcomer among the part's users the first positive row with n_before rows before it. learned: the interactions
    that the model was fitted on."""
    one_of(part, "part", ("test", "validation"))
    if not is_ordered(data):
        raise DataError("the data have no times, so no row of a newcomer comes before another; name their column with time.")
    tested = split.test if part == "test" else split.validation
    is_newcomer, is_warm = np.zeros(len(data.users), bool), np.zeros(len(data.items), bool)
    is_newcomer[data.user_numbers[tested]] = True
    is_newcomer[data.user_numbers[learned]] = False
    is_warm[data.item_numbers[learned]] = True
    if not is_newcomer.any():
        raise DataError(
            f"the split '{split.name}' has no {part} users of whom nothing was learned; train with --split newcomers."
        )
    visible = np.flatnonzero(is_newcomer[data.user_numbers] & is_warm[data.item_numbers])
    histories = _of_items(Histories.of(data, visible), is_warm)
    rows = _first_rows(histories, visible[data.interactions["positive"].to_numpy()[visible]], n_before)
    if len(rows) == 0:
        raise DataError(
            f"none of {int(is_newcomer.sum()):,} newcomers has {n_before + 1} rows of items that were learned of; ask for "
            "shorter histories."
        )
    return Targets(rows, histories.before(rows))


def _of_items(histories: Histories, is_kept: npt.NDArray[np.bool_]) -> Histories:
    """The events of some items, by item number."""
    stays = is_kept[histories.items]
    starts = np.concatenate([[0], np.cumsum(stays)])[histories.starts]
    return replace(
        histories,
        starts=starts,
        items=histories.items[stays],
        order=histories.order[stays],
        is_had=histories.is_had[stays],
    )


def _first_rows(histories: Histories, rows: Rows, n_before: int) -> Rows:
    """Of each user's rows the first in time that has n_before others before it."""
    owners = histories.row_users[rows]
    rows = rows[histories.stops(rows) - histories.starts[owners] >= n_before]
    rows = rows[np.lexsort((rows, histories.row_order[rows], histories.row_users[rows]))]
    place = np.flatnonzero(np.diff(histories.row_users[rows], prepend=-1))
    end, chosen = np.append(place[1:], len(rows)), []
    while len(place):  # again where the events before a row are of its own pair, which are no history of it
        is_long = histories.before(rows[place]).lengths >= n_before
        chosen.append(rows[place[is_long]])
        place, end = place[~is_long] + 1, end[~is_long]
        place, end = place[place < end], end[place < end]
    return np.sort(np.concatenate([np.empty(0, np.int64), *chosen]))


def curve_candidates(
    data: Dataset, split: Split, part: str, protocol: str, targets: Targets, users: int | None, seed: int
) -> Candidates:
    """What the targets are ranked among. users: a seeded sample of so many newcomers."""
    candidates = Candidates.like_part(data, split, part, protocol, targets.rows)
    return candidates if users is None else candidates.of_some_users(users, seed)


class NewcomerRanker:
    """A model's scores of newcomers as of their target rows, with the last `count` rows before them given."""

    def __init__(self, model: Model, encoded: Encoded, targets: Targets, count: int) -> None:
        self.model, self._encoded = model, encoded
        self._rows, self._history = targets.rows, targets.history.latest(count)

    @property
    def scores_in_threads(self) -> bool:
        return self.model.scores_in_threads and not self.model.folds_in

    def user_side(self, users: Ints, rows: Rows) -> UserSide:
        history = None
        if self.model.reads_history or self.model.folds_in or self.model.inputs.history:  # also one that knew but its own users
            history = _take(self._history, np.searchsorted(self._rows, rows))
        return UserSide(np.full(len(users), -1, np.int32), self._encoded.user_side(users, rows), history)

    def score_pairs(self, users: Ints, items: Ints, rows: Rows | None = None) -> Floats:
        assert rows is not None
        side = self.user_side(users, rows)
        if not self.model.folds_in:
            return self.model.score_pairs(side, items)
        return np.stack([self.model.score_all(side.slice(n, n + 1), items[n])[0] for n in range(len(users))])

    def score_all(self, users: Ints, items: Ints, rows: Rows | None = None) -> Floats:
        assert rows is not None
        side = self.user_side(users, rows)
        if not self.model.folds_in:
            return self.model.score_all(side, items)
        return np.concatenate([self.model.score_all(side.slice(n, n + 1), items) for n in range(len(users))])

    def score_into(self, users: Ints, items: Ints, rows: Rows, out: Floats) -> Floats:
        out[:] = self.score_all(users, items, rows)
        return out


def _take(history: History, places: npt.NDArray[np.int64]) -> History:
    return gathered(history.items, history.starts[places], history.starts[places + 1], history.order)
