"""Negatives: from places on a line to items."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gmlfm.kernels.cpu.jit import compiled

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]


@compiled
def places_left(users: Ints, drawn: Longs, keys: Longs, first: Longs, cut_before: Longs, total: Any, out: Longs) -> None:
    """The place of the d-th unit that a user's excluded items leave: drawn, out (N, n), users (N,).

    keys, first, cut_before: as NegativeSampler has them. The search stays among the user's own items, which are few and lie
    together; through the items of all users it would take three times as long."""
    for at in range(users.size):
        user = np.int64(users[at])
        begin, end = first[user], first[user + 1]
        base = user * (total + 1)
        for n in range(drawn.shape[1]):
            wanted = base + drawn[at, n]
            low, high = begin, end
            while low < high:
                middle = (low + high) // 2
                if keys[middle] <= wanted:
                    low = middle + 1
                else:
                    high = middle
            out[at, n] = drawn[at, n] + cut_before[low] - cut_before[begin]
