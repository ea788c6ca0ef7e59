"""Pieces of users' targets that one sequence of events serves."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from gmlfm import Dataset
from gmlfm.fitting.memory import MemoryPlan
from gmlfm.training.sampling.sequence_batches import SequenceBatches
from gmlfm.training.settings import Settings

N_ROWS = {"u0": 30, "u1": 9, "u2": 4, "u3": 14}
LENGTH = 8


@pytest.fixture(scope="module")
def data() -> Dataset:
    rows = [(user, f"i{(7 * n + len(user)) % 41}", n) for user, size in N_ROWS.items() for n in range(size)]
    schema = {"interactions": {"user": "user", "item": "item", "time": "time"}}
    return Dataset.from_tables(pl.DataFrame(rows, schema=["user", "item", "time"], orient="row"), schema=schema)


def batches_of(data: Dataset, length: int = LENGTH, split: str = "none") -> SequenceBatches:
    settings = Settings.make("sasrec", "topn", {"length": length, "batch_size": 20})
    batches = MemoryPlan(data, settings, split, {}, "cpu").selection_inputs().batches()
    assert isinstance(batches, SequenceBatches)
    return batches


def test_every_row_is_a_target_once_with_what_came_before(data: Dataset) -> None:
    batches = batches_of(data)
    seen = []
    for batch in batches.epoch(0):
        assert len(batch) > 0
        assert batch.is_kept.all()
        for row, target in enumerate(batch.targets):
            before = batch.had.items[batch.had.start[row] : batch.had.stop[row]].tolist()
            shown = batch.events[batch.row_first[row] : batch.row_stop[row]].tolist()
            assert shown == before[len(before) - len(shown) :]
            assert len(shown) >= min(len(before), LENGTH // 2)
            seen.append((tuple(before), int(target)))
    expected = []
    for user in range(len(N_ROWS)):
        rows = np.flatnonzero(data.user_numbers == user)
        items = data.item_numbers[rows[np.argsort(data.interactions["time"].to_numpy()[rows])]].tolist()
        expected += [(tuple(items[:n]), items[n]) for n in range(len(items))]
    assert sorted(seen) == sorted(expected)


@pytest.mark.parametrize("length", [1, 2, 7, 8, 100])
def test_a_target_has_half_of_a_sequence_before_it_where_there_is_as_much(data: Dataset, length: int) -> None:
    batches = batches_of(data, length)
    for number in range(5):
        for batch in batches.epoch(number):
            for start, stop in zip(batch.pieces[:-1], batch.pieces[1:], strict=True):
                first, last = batch.row_first[start], batch.row_stop[stop - 1]
                shown = batch.row_stop[start:stop] - np.maximum(first, last - length)
                n_before = batch.row_stop[start:stop] - first
                assert (shown >= np.minimum(n_before, -(-length // 2))).all()
                assert (shown <= length).all()


def test_who_fits_in_a_sequence_is_one_piece_and_others_are_cut_elsewhere_each_epoch(data: Dataset) -> None:
    batches = batches_of(data)
    cuts = set()
    for number in range(6):
        starts = batches._piece_starts(np.random.default_rng(number))
        n_pieces = np.bincount(batches.users[starts[:-1]], minlength=4)
        assert n_pieces[[1, 2]].tolist() == [1, 1]  # nine rows have eight events before the last
        assert n_pieces[0] >= 6
        cuts.add(tuple(starts[:4].tolist()))
    assert len(cuts) > 1


def test_rows_of_one_time_stand_behind_the_same_events(data: Dataset) -> None:
    rows = [("a", "w", 0), ("a", "x", 1), ("a", "y", 1), ("a", "z", 1), ("b", "w", 0)]
    table = pl.DataFrame(rows, schema=["user", "item", "time"], orient="row")
    for ties, expected in (("strict", [0, 0, 1, 1, 1]), ("file", [0, 0, 1, 2, 3])):
        tied = Dataset.from_tables(
            table, schema={"interactions": {"user": "user", "item": "item", "time": "time", "ties": ties}}
        )
        (batch,) = batches_of(tied).epoch(0)
        assert sorted((batch.row_stop - batch.row_first).tolist()) == expected
