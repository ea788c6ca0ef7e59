"""The earlier items of a step and what its rows mask, against loops; no step reads more than its windows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gmlfm.data.attributes import AttributeTable, Role
from gmlfm.models.base import HistorySpec
from gmlfm.training.engines.history_items import earlier_items, had_before
from gmlfm.training.rows import Distinct
from gmlfm.training.sampling.history_batches import Had, HistoryBatch

N_ITEMS = 30
ROLES: tuple[Role, ...] = ("last", "recent", "past")


def draw_batch(seed: int, n_before: int, length: int, dropout: float) -> HistoryBatch:
    """Three pieces of up to four rows, of users with so many events before their first row."""
    rng, sizes = np.random.default_rng(seed), [4, 1, 3]
    had_items = rng.integers(0, N_ITEMS, 3 * (n_before + 10)).astype(np.int32)
    events, first, start, stop, had_start, had_stop = [], [], [], [], [], []
    for user, size in enumerate(sizes):
        begin = user * (n_before + 10)
        stops = begin + n_before + np.arange(size)
        window = max(begin, int(stops[0]) - length)
        shift = sum(map(len, events)) - window
        events.append(had_items[window : stops[-1]])
        first += [window + shift] * size
        start += [max(window, int(row) - length) + shift for row in stops]
        stop += (stops + shift).tolist()
        had_start += [begin] * size
        had_stop += stops.tolist()
    all_events, n_rows = np.concatenate(events), sum(sizes)
    nobody = AttributeTable(np.zeros((n_rows, 0), np.int32), np.zeros((n_rows, 0), np.float32))
    longs: list[Any] = [np.array(values, np.int64) for values in (first, start, stop, np.cumsum([0, *sizes]))]
    had = Had(had_items, rng.random(len(had_items)) < 0.8, np.array(had_start), np.array(had_stop))
    is_kept = rng.random(len(all_events)) >= dropout
    targets = np.zeros(n_rows, np.int32)
    return HistoryBatch(nobody, targets, None, None, all_events, is_kept, *longs, None, (0,), had)


@pytest.mark.parametrize("roles", [ROLES, ("past",), ("last", "recent"), ("last",)])
@pytest.mark.parametrize("dropout", [0.0, 0.5, 1.0])
@pytest.mark.parametrize(("n_before", "length"), [(0, 5), (3, 5), (40, 5), (200, 150)])
def test_each_role_reads_its_own_items_and_no_others(
    roles: tuple[Role, ...], dropout: float, n_before: int, length: int
) -> None:
    half_life, distinct = 0.5, Distinct(N_ITEMS)  # recent reaches 16 events
    batch = draw_batch(3, n_before, length, dropout)
    batch.events[:] = np.random.default_rng(1).permutation(np.resize(np.arange(N_ITEMS), len(batch.events)))
    earlier = earlier_items(batch, HistorySpec(roles, half_life, length, 100), distinct)
    assert len(set(earlier.items.tolist())) == len(earlier.items)
    read: dict[str, set[int]] = {role: set() for role in ROLES}
    for row in range(len(batch)):
        window = range(batch.row_start[row], batch.row_stop[row])
        kept = [event for event in window if batch.is_kept[event]]
        read["past"] |= set(kept)
        read["recent"] |= {event for event in kept if kept[-1] - event <= 16}
        read["last"] |= set(window[-1:])
    used = set().union(*(read[role] for role in roles))
    for role, n_items in zip(roles, earlier.n_items, strict=True):
        for event in read[role]:
            assert earlier.windows.places[event] < n_items
            assert earlier.items[earlier.windows.places[event]] == batch.events[event]
    items = {role: {int(batch.events[event]) for event in events} for role, events in read.items()}
    if used:
        needed = [items["last"], items["last"] | items["recent"], items["last"] | items["recent"] | items["past"]]
        n_by_role = dict(zip(ROLES, map(len, needed), strict=True))
        for role, n_items in zip(roles, earlier.n_items, strict=True):
            # One more piece's recent events may lie in between, since a piece's are taken from its first row on.
            assert n_items <= max(n_by_role[role], 1) + (len(items["past"]) if role == "recent" else 0)
        assert earlier.n_items[roles.index("last") if "last" in roles else 0] >= 1


def test_what_is_masked_is_what_was_had_before_however_long_ago() -> None:
    batch = draw_batch(5, 40, 5, 0.0)
    column_of_item = np.where(np.arange(N_ITEMS + 1) % 3 == 0, np.arange(N_ITEMS + 1), -1).astype(np.int32)
    items, start, stop = had_before(batch, column_of_item)
    n_long_ago = 0
    for row in range(len(batch)):
        places = range(batch.had.start[row], batch.had.stop[row])
        expected = [int(batch.had.items[place]) for place in places if batch.had.is_had[place]]
        assert items[start[row] : stop[row]].tolist() == [item for item in expected if column_of_item[item] >= 0]
        n_long_ago += len(set(expected[:-8]) - set(expected[-8:]))
    assert n_long_ago > 20


def test_rows_without_events_read_nothing() -> None:
    batch = draw_batch(2, 0, 5, 0.0)
    nothing = np.zeros(len(batch), np.int64)
    empty = replace(
        batch, events=batch.events[:0], is_kept=batch.is_kept[:0], row_first=nothing, row_start=nothing, row_stop=nothing
    )
    earlier = earlier_items(empty, HistorySpec(ROLES, 5.5, 5, 100), Distinct(N_ITEMS))
    assert earlier.n_items == (1, 1, 1)
    assert earlier.items.tolist() == [0]
