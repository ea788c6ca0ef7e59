"""Batches for models that read whole sequences: one pass over a user's events gives the scores of a piece of their targets."""

from __future__ import annotations

import numpy as np

from gmlfm.training.sampling.history_batches import HistoryBatches, Longs


class SequenceBatches(HistoryBatches):
    """Pieces whose targets fit in one sequence of `spec.length` events.

    A user of no more events is one piece. Others are cut at every half of a sequence, elsewhere each epoch, so that a target
    has half of a full sequence before it at least: where such a user is scored, the sequence is full.
    """

    reads_sequences = True

    def _piece_starts(self, rng: np.random.Generator) -> Longs:
        histories, length = self.histories, self.spec.length
        half = max(1, length // 2)
        events_before = self.stops - histories.starts[self.users]
        begins_user = np.diff(self.users, prepend=-1) != 0
        ends = np.append(np.flatnonzero(begins_user)[1:], len(self.users)) - 1
        is_short = np.zeros(histories.n_users, bool)
        is_short[self.users[ends]] = events_before[ends] <= length
        # The first cut of a long user is where a sequence is full, or somewhat earlier.
        offset = rng.integers(0, half, histories.n_users)[self.users]
        number = np.where(is_short[self.users], 0, np.maximum(events_before - length + half + offset, 0) // half)
        begins = begins_user | (np.diff(number, prepend=0) != 0) | self.stands_alone
        begins[1:] |= self.stands_alone[:-1]
        return np.append(np.flatnonzero(begins), len(self.rows))
