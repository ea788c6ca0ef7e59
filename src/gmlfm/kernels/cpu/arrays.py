"""The arguments of the kernels, by name."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]


class Groups(NamedTuple):
    """N groups: user side (N, F), item side (N, G, F'), labels (N, G), weights (N,) or empty."""

    user_ids: Ints
    user_x: Floats
    item_ids: Ints
    item_x: Floats
    labels: Floats
    weights: Floats


class Rows(NamedTuple):
    """The table (n, width), the optimiser's state of it, and the slot of each row in the present step (-1: none).

    first_moment, second_moment: (n, width), updates: (n, 1); with one row where the optimiser has no such state.
    """

    table: Floats
    first_moment: Floats
    second_moment: Floats
    updates: Floats
    slot: Ints


class Dense(NamedTuple):
    """All dense parameters packed in one row, (1, P), with the optimiser's state of them; updates: (1, 1)."""

    values: Floats
    first_moment: Floats
    second_moment: Floats
    updates: Floats


class Rule(NamedTuple):
    """optimiser, loss: as gmlfm.kernels.codes numbers them.

    first_correction, second_correction: Adam's bias correction, 1 / (1 - 0.9^c) and 1 / (1 - 0.999^c) for c updates, to where
    they are 1.
    """

    optimiser: int
    loss: int
    lr: Any
    weight_decay: Any
    first_correction: Floats
    second_correction: Floats
