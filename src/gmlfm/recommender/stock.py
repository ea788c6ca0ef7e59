"""Which items can be had."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gmlfm.data.encoding import Encoder

SOLD, BACK = "sold", "back"


@dataclass(frozen=True, eq=False)
class Stock:
    """Every item can be had until it is marked sold, and again when it is marked back. It never changes: a mark makes another.

    marks: by item id, the last one; they may name items that are not in the catalogue, or not yet.
    """

    is_available: npt.NDArray[np.bool_]
    marks: Mapping[str, str]

    @classmethod
    def over(cls, encoder: Encoder, marks: Mapping[str, str] | None = None) -> Stock:
        """These marks over a catalogue."""
        is_available, marks = np.ones(len(encoder.item_ids), bool), dict(marks or {})
        numbers = encoder.item_numbers([item for item, kind in marks.items() if kind == SOLD])
        is_available[numbers[numbers >= 0]] = False
        return cls(is_available, marks)

    def back(self) -> list[str]:
        """The items that were marked back."""
        return [item for item, kind in self.marks.items() if kind == BACK]
