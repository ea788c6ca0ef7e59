"""Plans of steps against a plain walk over the occurrences."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gmlfm.training.engines.occurrences import PIECE, plan_steps


@pytest.mark.parametrize(("n_steps", "n", "n_rows"), [(1, 1, 5), (3, 40, 7), (4, 300, 3), (2, 5, 2**31)])
def test_every_occurrence_has_its_row_and_a_place_of_its_own(n_steps: int, n: int, n_rows: int) -> None:
    rows = np.random.default_rng(n).integers(0, min(n_rows, 50), (n_steps, n))
    plan = plan_steps(torch.from_numpy(rows.astype(np.int32 if n_rows < 2**31 else np.int64)), n_rows)
    first_slot, first_piece = plan.first_slot.tolist(), plan.first_piece.tolist()
    assert plan.most_slots == max(len(np.unique(one)) for one in rows)
    assert plan.most_pieces == max(np.diff(first_piece))
    for step in range(n_steps):
        own = plan.rows[first_slot[step] : first_slot[step + 1]].tolist()
        assert sorted(own) == np.unique(rows[step]).tolist()
        assert [own[slot] for slot in plan.slots[step].tolist()] == rows[step].tolist()
        assert sorted(plan.positions[step].tolist()) == list(range(n))
        at_position = np.empty(n, np.int64)
        at_position[plan.positions[step].numpy()] = rows[step]
        for slot, row in enumerate(own):
            pieces = range(*plan.sources[first_slot[step] + slot :][:2].tolist())
            spans = [(int(plan.piece_starts[one]), int(plan.piece_ends[one])) for one in pieces]
            covered = [position for start, end in spans for position in range(start, end)]
            assert all(0 <= end - start <= PIECE for start, end in spans)
            # Padding has no slopes, so nothing of it is summed.
            assert covered == ([] if row == 0 else np.flatnonzero(at_position == row).tolist())
            assert all(first_piece[step] <= one < first_piece[step + 1] for one in pieces)
