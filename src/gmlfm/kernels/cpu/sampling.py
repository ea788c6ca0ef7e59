"""Negatives: from numbers drawn among what a user's excluded items leave, to positions among all items."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gmlfm.kernels.cpu.jit import compiled

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]


@compiled
def places_left(users: Ints, drawn: Longs, keys: Longs, starts: Longs, cut_before: Longs, total: Any, out: Longs) -> None:
    """The place of the d-th unit that a user's excluded items leave: drawn, out (N, n), users (N,).

    keys, starts (each user's first key), cut_before: as NegativeSampler has them. The search stays among the user's own items,
    which are few and lie together; through the items of all users it would take three times as long."""
    for i in range(users.size):
        user = np.int64(users[i])
        begin, end = starts[user], starts[user + 1]
        base = user * (total + 1)
        for n in range(drawn.shape[1]):
            key = base + drawn[i, n]
            low, high = begin, end
            while low < high:
                middle = (low + high) // 2
                if keys[middle] <= key:
                    low = middle + 1
                else:
                    high = middle
            out[i, n] = drawn[i, n] + cut_before[low] - cut_before[begin]
