"""Sampled candidates: the items against which a tested row's item is ranked, seeded and the same for all models."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gmlfm.data.dataset import Dataset, Rows
from gmlfm.errors import DataError
from gmlfm.training.sampling.negatives import NegativeSampler

N_SAMPLED = 99
Ints = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Pairs:
    """(user, item) numbers."""

    users: Ints
    items: Ints

    @classmethod
    def positives(cls, data: Dataset, more: Pairs | None = None) -> Pairs:
        """The positives of all parts, and more that are known from elsewhere."""
        users, items = data.user_numbers[data.positive_rows], data.item_numbers[data.positive_rows]
        if more is None:
            return cls(users, items)
        return cls(np.concatenate([users, more.users]), np.concatenate([items, more.items]))


def evaluation_candidates(
    data: Dataset, rows: Rows, n: int = N_SAMPLED, seed: int = 0, candidates: Ints | None = None, more: Pairs | None = None
) -> tuple[Ints, str]:
    """For each tested row n distinct items that are none of the user's positives in any part, and the lists' hash."""
    positives = Pairs.positives(data, more)
    allowed = data.seen_items if candidates is None else candidates
    sampler = NegativeSampler(positives.users, positives.items, len(data.users), allowed, data.users.ids)
    users = data.user_numbers[rows]
    least = int(np.argmin(sampler.free(users)))
    if sampler.free(users)[least] < n:
        raise DataError(
            f"user '{data.users.ids[int(users[least])]}' leaves {sampler.free(users)[least]:,} of {len(allowed):,} items, but "
            f"{n} are to be sampled; these data are too small for that protocol, use full."
        )
    drawn = sampler.draw_distinct(users, n, np.random.default_rng([seed, 2]))
    return drawn, hashlib.sha256(rows.astype("<i8").tobytes() + drawn.astype("<i4").tobytes()).hexdigest()[:16]
