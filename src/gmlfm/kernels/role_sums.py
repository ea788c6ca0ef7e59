r"""What a user did before, as sums of item vectors by role: the plain reference in float64, a loop over rows and events.

.. math:: p_b = \frac{1}{\lVert w_b \rVert} \sum_j w_{bj} \, y_{e_j}

j runs over the kept events of the row's window. Role `recent`: w = 2^(-age / half_life); `past`: w = 1; `last`: the latest
event alone, which counts whether it is kept or not. A row without events, or with none kept, has the sum 0.

Letters: B rows, E events, M distinct items, D width, R roles.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]


class Windows(NamedTuple):
    """The histories of B rows. events (E,): places among the M items, oldest first; is_kept (E,): False where dropped.
    The window of row b is events[row_start[b]:row_stop[b]]."""

    events: npt.NDArray[np.int32]
    is_kept: npt.NDArray[np.bool_]
    row_start: npt.NDArray[np.int64]
    row_stop: npt.NDArray[np.int64]


def role_sums(roles: Sequence[str], half_life: float, windows: Windows, vectors: Any, *, summed: bool) -> Doubles:
    """vectors (R, M, D), those of the items in each role -> (R, B, D); summed: over the roles, (B, D)."""
    vectors = np.asarray(vectors, np.float64)
    sums = np.zeros((len(roles), len(windows.row_stop), vectors.shape[2]))
    for place, role in enumerate(roles):
        for row in range(len(windows.row_stop)):
            for event, weight in _weights(role, half_life, windows, row):
                sums[place, row] += weight * vectors[place, windows.events[event]]
    total: Doubles = sums.sum(0)
    return total if summed else sums


def role_sums_backward(
    roles: Sequence[str], half_life: float, windows: Windows, n_items: int, gradient: Any, *, summed: bool
) -> Doubles:
    """The gradient at the vectors, (R, M, D), from that at what `role_sums` returns."""
    gradient = np.asarray(gradient, np.float64)
    vector_grads = np.zeros((len(roles), n_items, gradient.shape[-1]))
    for place, role in enumerate(roles):
        row_grads = gradient if summed else gradient[place]
        for row in range(len(windows.row_stop)):
            for event, weight in _weights(role, half_life, windows, row):
                vector_grads[place, windows.events[event]] += weight * row_grads[row]
    return vector_grads


def _weights(role: str, half_life: float, windows: Windows, row: int) -> list[tuple[int, float]]:
    """The events of a row's window that count, and the weight of each; scaled to unit length."""
    start, stop = int(windows.row_start[row]), int(windows.row_stop[row])
    if role == "last":
        return [(stop - 1, 1.0)] if stop > start else []
    kept = [event for event in range(start, stop) if windows.is_kept[event]]
    if not kept:
        return []
    # From the youngest kept event on: unit length takes a common factor away, and far back the weights would be 0 / 0.
    ages = kept[-1] - np.array(kept)
    weights = {"recent": 2.0 ** (-ages / half_life), "past": np.ones(len(kept))}[role]
    return list(zip(kept, (weights / np.linalg.norm(weights)).tolist(), strict=True))
