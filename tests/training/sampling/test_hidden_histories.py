"""Histories that are hidden whole, so that users without any are trained for."""

from __future__ import annotations

import numpy as np
import pytest

from tests.training.test_history_level import Begun


@pytest.mark.parametrize("piece", [1, 4])
def test_the_histories_of_a_share_of_the_pieces_are_hidden(piece: int) -> None:
    begun = Begun(piece=piece, cold_start_rate=0.2)
    n_hidden, n_pieces = 0, 0
    for batch in begun.batches.epoch(0):
        has_window = batch.row_start < batch.row_stop
        had_before = batch.row_first < batch.row_stop
        for start, stop in zip(batch.pieces[:-1], batch.pieces[1:], strict=True):
            rows = slice(int(start), int(stop))
            if not had_before[rows].any():
                continue
            n_pieces += 1
            is_hidden = not has_window[rows].any()
            n_hidden += is_hidden
            assert is_hidden or np.array_equal(has_window[rows], had_before[rows])
            assert (np.diff(batch.row_start[rows]) >= 0).all()
        assert (batch.row_start <= batch.row_stop).all()
    assert 0.15 < n_hidden / n_pieces < 0.25


def test_what_a_hidden_history_holds_stays_masked_and_nothing_is_hidden_at_rate_0() -> None:
    begun = Begun(cold_start_rate=0.0)
    for batch in begun.batches.epoch(0):
        assert np.array_equal(
            batch.row_start, np.maximum(batch.row_first, batch.row_stop - begun.settings.history.history_length)
        )
    for batch in Begun(cold_start_rate=0.5).batches.epoch(0):
        # What is masked is what row_first to row_stop names, whether the window is empty or not.
        for row in range(len(batch)):
            masked = batch.events[batch.row_first[row] : batch.row_stop[row]]
            assert len(masked) == batch.row_stop[row] - batch.row_first[row]
            assert int(batch.targets[row]) not in masked
