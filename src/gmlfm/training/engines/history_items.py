"""Which earlier items a step with histories reads in each role, and which columns its rows mask."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gmlfm.kernels.cpu.had_items import columns_had
from gmlfm.kernels.cpu.role_sums import recent_starts
from gmlfm.models.base import HistorySpec
from gmlfm.training.engines.history_ops import Windows
from gmlfm.training.rows import Distinct
from gmlfm.training.sampling.history_batches import HistoryBatch

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]


@dataclass(frozen=True)
class EarlierItems:
    """windows: of the rows, as places among `items`; items: distinct; role number r reads the first n_items[r] of them."""

    windows: Windows
    items: Ints
    n_items: tuple[int, ...]


def earlier_items(batch: HistoryBatch, spec: HistorySpec, distinct: Distinct) -> EarlierItems:
    """The items of the events that count. The role `last` reads the latest ones, `recent` those young enough to have a weight,
    so that a step leaves alone what a role does not read."""
    has_events = batch.row_stop > batch.row_start
    latest = batch.row_stop[has_events] - 1
    kept = np.flatnonzero(batch.is_kept)
    is_recent = np.zeros(len(batch.events) + 1, np.int32)
    starts = recent_starts(batch.is_kept, batch.row_start, batch.row_stop, spec.half_life)
    if starts is not batch.row_start:
        # Of a piece, whose windows never fall, from the start of its first to the end of its last.
        np.add.at(is_recent, starts[batch.pieces[:-1]], 1)
        np.add.at(is_recent, batch.row_stop[batch.pieces[1:] - 1], -1)
        in_recent = np.cumsum(is_recent[:-1])[kept] > 0
        recent, older = kept[in_recent], kept[~in_recent]
    else:
        recent, older = kept, kept[:0]
    # Distinct items come in the order of their last places: turned around, what every role reads comes first.
    listed = np.concatenate([older, recent, latest])
    places = np.zeros(len(batch.events), np.int32)
    if len(listed) == 0:
        windows = Windows(places, batch.is_kept, batch.row_start, batch.row_stop, batch.pieces)
        return EarlierItems(windows, np.zeros(1, np.int32), (1,) * len(spec.roles))
    items, place_of = distinct(batch.events[listed])
    place_of = np.int32(len(items) - 1) - place_of
    places[listed] = place_of
    first_of = {"last": len(older) + len(recent), "recent": len(older), "past": 0}
    n_items = tuple(int(place_of[first_of[role] :].max(initial=0)) + 1 for role in spec.roles)
    windows = Windows(places, batch.is_kept, batch.row_start, batch.row_stop, batch.pieces)
    return EarlierItems(windows, np.ascontiguousarray(items[::-1]), n_items)


def had_before(batch: HistoryBatch, column_of_item: Ints) -> tuple[Ints, Longs, Longs]:
    """The items among the columns that each row's user had before, and where each row's begin and end."""
    had, n_rows = batch.had, len(batch)
    start, stop = np.empty(n_rows, np.int64), np.empty(n_rows, np.int64)
    longest = np.maximum(had.stop[batch.pieces[1:] - 1] - had.start[batch.pieces[:-1]], 0)
    items = np.empty(int(longest.sum()), np.int32)
    n = columns_had(had.items, had.is_had, column_of_item, had.start, had.stop, batch.pieces, items, start, stop)
    return items[:n], start, stop
