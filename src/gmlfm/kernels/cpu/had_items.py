"""Which of a step's columns users had before: their events are read where they stand, once for all rows of a piece."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gmlfm.kernels.cpu.arrays import Ints, Longs
from gmlfm.kernels.cpu.jit import compiled


@compiled
def columns_had(
    items: Ints,
    is_had: npt.NDArray[np.bool_],
    column_of_item: Ints,
    start: Longs,
    stop: Longs,
    pieces: Longs,
    had: Ints,
    had_start: Longs,
    had_stop: Longs,
) -> int:
    """items, is_had: of all events; start, stop (B,): those before each row; the rows of a piece have one start, and their stop
    never falls. had: becomes the items that are columns and were had, piece after piece; had_start, had_stop (B,): where each
    row's are. Returns how many there are."""
    n = 0
    for piece in range(pieces.size - 1):
        begin, end = pieces[piece], pieces[piece + 1]
        place, event = n, start[begin]
        for row in range(begin, end):
            while event < stop[row]:
                item = items[event]
                if column_of_item[item] >= 0 and is_had[event]:
                    had[n] = item
                    n += 1
                event += 1
            had_start[row], had_stop[row] = place, n
    return n
