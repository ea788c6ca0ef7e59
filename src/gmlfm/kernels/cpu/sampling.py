"""Negatives: from places on a line to items."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gmlfm.kernels.cpu.jit import compiled

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]


@compiled
def places_left(users: Ints, drawn: Longs, keys: Longs, starts: Longs, n_candidates: int, out: Longs) -> None:
    """The place of the d-th candidate that a user's excluded items leave: drawn, out (N, n), users (N,).

    keys, starts: as NegativeSampler has them. The search stays among the user's own items, which are few and lie
    together; through the items of all users it would take three times as long."""
    for row in range(users.size):
        user = np.int64(users[row])
        begin, end = starts[user], starts[user + 1]
        base = user * (n_candidates + 1)
        for n in range(drawn.shape[1]):
            key = base + drawn[row, n]
            low, high = begin, end
            while low < high:
                middle = (low + high) // 2
                if keys[middle] <= key:
                    low = middle + 1
                else:
                    high = middle
            out[row, n] = drawn[row, n] + low - begin
