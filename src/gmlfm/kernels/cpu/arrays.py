"""What the kernels are handed, by name."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]


class Groups(NamedTuple):
    """N groups: user side (N, F), item side (N, G, F'), labels (N, G), weights (N,) or empty."""

    user_ids: Ints
    user_x: Floats
    item_ids: Ints
    item_x: Floats
    labels: Floats
    weights: Floats


class Rows(NamedTuple):
    """The table (n, width), what the optimiser keeps of it, and which slot a row has in the step at hand (-1: none).

    first, second: (n, width), updates: (n, 1); with one row where the optimiser keeps no such thing.
    """

    table: Floats
    first: Floats
    second: Floats
    updates: Floats
    slot: Ints


class Dense(NamedTuple):
    """All dense parameters in one line, (1, P), with what the optimiser keeps of them; updates: (1, 1)."""

    values: Floats
    first: Floats
    second: Floats
    updates: Floats


class Rule(NamedTuple):
    """optimiser: as rows.update numbers them; objective: as losses.group_loss does.

    fading_first, fading_second: 1 / (1 - 0.9^c) and 1 / (1 - 0.999^c) for c updates, to where they are 1.
    """

    optimiser: int
    objective: int
    lr: Any
    weight_decay: Any
    fading_first: Floats
    fading_second: Floats
