"""Sorted occurrences against a plain walk over them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gmlfm.training.engines.occurrences import PIECE, sort_occurrences


@pytest.mark.parametrize(("n_steps", "n", "n_rows"), [(1, 1, 5), (3, 40, 7), (4, 300, 3), (2, 5, 2**31)])
def test_every_occurrence_has_its_row_and_a_place_of_its_own(n_steps: int, n: int, n_rows: int) -> None:
    rows = np.random.default_rng(n).integers(0, min(n_rows, 50), (n_steps, n))
    result = sort_occurrences(torch.from_numpy(rows.astype(np.int32 if n_rows < 2**31 else np.int64)), n_rows)
    first_slot, first_piece = result.first_slot.tolist(), result.first_piece.tolist()
    assert result.most_slots == max(len(np.unique(step_rows)) for step_rows in rows)
    assert result.most_pieces == max(np.diff(first_piece))
    for step in range(n_steps):
        slot_rows = result.rows[first_slot[step] : first_slot[step + 1]].tolist()
        assert sorted(slot_rows) == np.unique(rows[step]).tolist()
        assert [slot_rows[slot] for slot in result.slots[step].tolist()] == rows[step].tolist()
        assert sorted(result.positions[step].tolist()) == list(range(n))
        row_at_position = np.empty(n, np.int64)
        row_at_position[result.positions[step].numpy()] = rows[step]
        for slot, row in enumerate(slot_rows):
            pieces = range(*result.sources[first_slot[step] + slot :][:2].tolist())
            spans = [(int(result.piece_starts[piece]), int(result.piece_ends[piece])) for piece in pieces]
            covered = [position for start, end in spans for position in range(start, end)]
            assert all(0 <= end - start <= PIECE for start, end in spans)
            # Padding has no gradients, so nothing of it is summed.
            assert covered == ([] if row == 0 else np.flatnonzero(row_at_position == row).tolist())
            assert all(first_piece[step] <= piece < first_piece[step + 1] for piece in pieces)
