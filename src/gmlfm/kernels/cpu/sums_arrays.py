"""What the kernels of sums.py share, by name."""

from __future__ import annotations

from typing import Any, NamedTuple

from gmlfm.kernels.cpu.arrays import Floats, Ints, Longs


class SumsShape(NamedTuple):
    """A SumsSpec as the kernels take it; user_l2 and item_l2 float32. The only packed parameter is the global bias."""

    k: int
    translated: bool
    linear: bool
    user_l2: Any
    item_l2: Any


class SumsWork(NamedTuple):
    """Buffers for one step of at most U distinct rows (U, width), and for each part the gradients of rows and bias."""

    rows: Ints
    user_slots: Ints
    item_slots: Ints
    values: Floats
    row_grads: Floats
    dense_grads: Floats
    losses: Floats
    n_distinct: Longs


class GroupSums(NamedTuple):
    """A group of G items. sums, sum_grads: (1 + G, K), row 0 the user's, then the items': the x-weighted sums of points, and
    the loss's gradients at them. squares, amounts: (G,), the items' sums of x |v|^2 and of x, and origin (1, K), from which the
    points are taken, where TransFM needs them."""

    sums: Floats
    sum_grads: Floats
    squares: Floats
    amounts: Floats
    scores: Floats
    score_grads: Floats
    origin: Floats
