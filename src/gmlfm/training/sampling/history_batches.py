"""Batches of targets with what their users did before: pieces of users' sequences, in a new order each epoch."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from gmlfm.data.attributes import AttributeTable
from gmlfm.data.dataset import Rows
from gmlfm.data.encoding import Encoded
from gmlfm.data.histories import Histories, ranges
from gmlfm.models.base import HistorySpec, UserSide
from gmlfm.training.sampling.batches import BatchOptions
from gmlfm.training.sampling.groups import Floats, IdRows, Ints
from gmlfm.training.sampling.negatives import TrainingNegatives

Longs = npt.NDArray[np.int64]
_STEPS_PER_EPOCH, _SMALLEST_BATCH, _LARGEST_BATCH = 80, 64, 2048  # small data want small steps


@dataclass(frozen=True)
class Had:
    """All that users did before some rows, in place: row b's events are items[start[b]:stop[b]], of which the user had those
    where is_had."""

    items: Ints
    is_had: npt.NDArray[np.bool_]
    start: Longs
    stop: Longs


@dataclass(frozen=True)
class HistoryBatch:
    """The targets of one step, and their histories. B rows in P pieces; a piece is some consecutive targets of one user.

    users: attributes with the context of each row (B, F). targets: (B,) items. labels, weights: (B,) or None.
    events: (E,) items, the pieces' one after another, each with what its user did from the window of its first target to its
    last target, oldest first; is_kept: (E,) the dropout mask. row_first, row_start, row_stop: (B,) where a row's piece begins
    among the events, where the window of its history begins, and where its history ends. pieces: (P + 1,) the rows of each
    piece. negatives: (B, G) items beside each target, or None where the step shares them. had: all that users did before,
    however long ago, by which items are masked. seed: of the step's draws.
    """

    users: AttributeTable
    targets: Ints
    labels: Floats | None
    weights: Floats | None
    events: Ints
    is_kept: npt.NDArray[np.bool_]
    row_first: Longs
    row_start: Longs
    row_stop: Longs
    pieces: Longs
    negatives: Ints | None
    seed: tuple[int, ...]
    had: Had

    def __len__(self) -> int:
        return len(self.targets)


class TargetBatches(ABC):
    """What steps with histories are taken from: rows as targets with what their users did before.

    encoded: of its users, of which batches have copies, and of all items. candidates: the items that shared negatives, or all,
    are taken from. reads_sequences: whether a piece's events are one sequence.
    """

    encoded: Encoded
    ids: IdRows
    spec: HistorySpec
    options: BatchOptions
    candidates: Ints
    reads_sequences = False

    @property
    @abstractmethod
    def shares_negatives(self) -> bool:
        """Whether the rows of a step share the items that their targets stand among."""

    @property
    @abstractmethod
    def n_instances(self) -> int: ...

    @property
    def n_learned(self) -> int:
        """Of how many rows the model has learned in all: more than these targets where a run is trained on."""
        return self.n_instances

    @property
    @abstractmethod
    def groups_per_step(self) -> int: ...

    @property
    @abstractmethod
    def steps_per_epoch(self) -> int: ...

    @property
    def steps_of_learned(self) -> int:
        """Steps of an epoch over all that the model has learned from."""
        return self.steps_per_epoch

    @abstractmethod
    def epoch(self, number: int) -> Iterator[HistoryBatch]: ...

    @abstractmethod
    def draw_users(self, n: int, rng: np.random.Generator) -> UserSide:
        """Some users with all that they did, each in the context of their latest row."""

    def cold_start_sampler(self, number: int) -> None:
        """Newcomers are ordinary users here; new items are trained for by steps of the engine's own."""
        return


def rows_per_step(options: BatchOptions, n_rows: int) -> int:
    """Of a step with histories, by how many rows there are in all."""
    if options.batch_size is not None:
        return options.batch_size
    return min(options.largest_batch or _LARGEST_BATCH, max(_SMALLEST_BATCH, n_rows // _STEPS_PER_EPOCH))


class HistoryBatches(TargetBatches):
    """Every training row is a target, with the visible rows before it as history, never itself or later ones.

    What a step costs does not grow with what its users did before their windows, which is not copied. Of a share of the pieces
    (cold_start_rate) the history is hidden, so that users without any are trained for: their windows are empty, while what
    they had stays masked: `had`, which has also targets of kinds that do not count as history.
    """

    def __init__(
        self,
        rows: Rows,
        histories: Histories,
        encoded: Encoded,
        ids: IdRows,
        spec: HistorySpec,
        options: BatchOptions,
        *,
        dropout: float,
        piece: int,
        labels: Floats | None = None,
        weights: Floats | None = None,
        negatives: TrainingNegatives | None = None,
        candidates: Ints,
        had: Histories | None = None,
        learned: Rows | None = None,
    ) -> None:
        """rows: of the interactions, the targets. negatives: those of each row, where they are not shared; candidates: the
        items that shared negatives, or all, are taken from. had: what users had, where that is more than what is history;
        learned: the rows that the model has learned from, where these are more than the targets."""
        self.histories, self.encoded, self.ids, self.spec, self.options = histories, encoded, ids, spec, options
        self.had, self._learned = histories if had is None else had, learned
        self.dropout, self._piece, self.candidates = dropout, piece, candidates
        order = np.lexsort((rows, histories.row_order[rows], histories.row_users[rows]))
        self.rows = rows[order]
        self._labels, self.weights = (None if array is None else array[order] for array in (labels, weights))
        self._negatives, self._place_of_negatives = negatives, order
        self.users, self.items = histories.row_users[self.rows], histories.row_items[self.rows]
        self.stops = histories.stops(self.rows)
        self._had_stops = self.stops if had is None else had.stops(self.rows)

    @property
    def shares_negatives(self) -> bool:
        return self._negatives is None and self._labels is None

    @property
    def n_instances(self) -> int:
        return len(self.rows)

    @property
    def n_learned(self) -> int:
        return self.n_instances if self._learned is None else len(self._learned)

    @property
    def groups_per_step(self) -> int:
        return rows_per_step(self.options, self.n_instances)

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.n_instances // self.groups_per_step)

    @property
    def steps_of_learned(self) -> int:
        return -(-self.n_learned // rows_per_step(self.options, self.n_learned))

    def draw_users(self, n: int, rng: np.random.Generator) -> UserSide:
        rows = self._latest_rows[np.sort(rng.permutation(len(self._latest_rows))[:n])]
        users = self.histories.row_users[rows]
        return UserSide(users, self.encoded.user_side(users, rows), self.histories.complete(users))

    @cached_property
    def _latest_rows(self) -> Rows:
        """Of each user that the model has learned from, by number."""
        histories, rows = self.histories, self.rows
        if self._learned is not None:
            order = np.lexsort((self._learned, histories.row_order[self._learned], histories.row_users[self._learned]))
            rows = self._learned[order]
        return rows[np.flatnonzero(np.diff(histories.row_users[rows], append=-1))]

    def epoch(self, number: int, first_step: int = 0) -> Iterator[HistoryBatch]:
        """first_step: how many steps of the epoch came before these, where the rows are but some of it."""
        rng = np.random.default_rng([self.options.seed, 10, number])
        starts = self._piece_starts(rng)
        order = rng.permutation(len(starts) - 1)
        sizes = np.diff(starts)[order]
        step_of_piece = (np.cumsum(sizes) - sizes) // self.groups_per_step
        cuts = np.searchsorted(step_of_piece, np.arange(int(step_of_piece[-1]) + 2))
        for step, (begin, end) in enumerate(itertools.pairwise(cuts)):
            if begin < end:
                chosen = order[begin:end]
                yield self._batch(starts[chosen], starts[chosen + 1], rng, (self.options.seed, 12, number, first_step + step))

    def _piece_starts(self, rng: np.random.Generator) -> Longs:
        """Where pieces begin among the rows, cut anew each epoch; the end of the last one behind them."""
        n, size = len(self.rows), self._piece
        begins_user = np.diff(self.users, prepend=-1) != 0
        first = np.maximum.accumulate(np.where(begins_user, np.arange(n), 0))
        offset = rng.integers(0, size, self.histories.n_users)[self.users]
        begins = begins_user | ((np.arange(n) - first + offset) % size == 0) | self.stands_alone
        begins[1:] |= self.stands_alone[:-1]
        return np.append(np.flatnonzero(begins), n)

    @cached_property
    def stands_alone(self) -> npt.NDArray[np.bool_]:
        """Rows with an earlier event of their own pair, which is no history of them but may be of their neighbours."""
        histories = self.histories
        if not histories.excludes_own:
            return np.zeros(len(self.rows), bool)
        n_items = int(max(histories.items.max(initial=0), self.items.max(initial=0))) + 1
        owners = np.repeat(np.arange(histories.n_users, dtype=np.int64), np.diff(histories.starts))
        pairs, first = np.unique(owners * n_items + histories.items, return_index=True)
        own = self.users.astype(np.int64) * n_items + self.items
        place = np.minimum(np.searchsorted(pairs, own), len(pairs) - 1)
        # Events of a pair come in the order of time, so the first index is that of its earliest event.
        stands_alone: npt.NDArray[np.bool_] = (pairs[place] == own) & (first[place] < self.stops)
        return stands_alone

    def _negatives_of(self, places: Rows, rng: np.random.Generator) -> Ints:
        assert self._negatives is not None
        return self._negatives.draw(places, rng) if self._negatives.fresh else self._fixed_negatives[places]

    @cached_property
    def _fixed_negatives(self) -> Ints:
        """Those of all epochs, where they are not drawn anew."""
        assert self._negatives is not None
        return self._negatives.of_epoch(0)

    def _batch(self, starts: Longs, ends: Longs, rng: np.random.Generator, seed: tuple[int, ...]) -> HistoryBatch:
        """The pieces starts[p]:ends[p] of the rows."""
        histories = self.histories
        places, pieces = ranges(starts, ends)
        begin, end = histories.starts[self.users[starts]], self.stops[ends - 1]
        end = np.maximum(begin, end)
        # Where events are left out below, a window reaches further back than its length.
        window = np.maximum(begin, self.stops[starts] - self.spec.length)
        begin = np.where(self.stands_alone[starts], begin, window)
        flat, event_starts = ranges(begin, end)
        sizes = ends - starts
        shift = np.repeat(event_starts[:-1] - begin, sizes)
        row_first, row_stop = np.repeat(event_starts[:-1], sizes), self.stops[places] + shift
        events, is_own = histories.items[flat], None
        if histories.excludes_own and self.stands_alone[places].any():
            is_own = np.repeat(self.stands_alone[starts], np.diff(event_starts)) & (
                events == np.repeat(self.items[starts], np.diff(event_starts))
            )
        if is_own is not None:
            kept_before = np.concatenate([[0], np.cumsum(~is_own)])
            events = events[~is_own]
            row_first, row_stop = kept_before[row_first], kept_before[row_stop]
        is_kept = rng.random(len(events), np.float32) >= self.dropout if self.dropout else np.ones(len(events), bool)
        row_start = np.maximum(row_first, row_stop - self.spec.length)
        rows = self.rows[places]
        users = self.encoded.user_side(self.users[places], rows)
        if self.options.cold_start_rate:
            is_hidden = np.repeat(rng.random(len(starts), np.float32) < self.options.cold_start_rate, sizes)
            row_start = np.where(is_hidden, row_stop, row_start)
            users = self.spec.user_attributes(users, is_hidden)
        negatives = None
        if self._negatives is not None:
            negatives = self._negatives_of(self._place_of_negatives[places], rng)
        return HistoryBatch(
            users,
            self.items[places],
            None if self._labels is None else self._labels[places],
            None if self.weights is None else self.weights[places],
            events,
            is_kept,
            row_first,
            row_start,
            row_stop,
            pieces,
            negatives,
            seed,
            Had(self.had.items, self.had.is_had, self.had.starts[self.users[places]], self._had_stops[places]),
        )


def training_items(catalogue: AttributeTable, ids: IdRows) -> AttributeTable:
    """The items as training scores them: one without a training positive stands at the negative-only row, with those of its
    attributes that some item with a positive has."""
    item_ids, item_x = np.array(catalogue.ids), np.array(catalogue.values)
    is_untrained = ~ids.trained_items
    item_x[is_untrained] *= ids.trained_rows[item_ids[is_untrained]]
    item_ids[is_untrained, 0], item_x[is_untrained, 0] = ids.negative_only_row, 1.0
    return AttributeTable(item_ids, item_x)
