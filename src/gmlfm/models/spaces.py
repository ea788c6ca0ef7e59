"""What tuning may choose from: a model declares its own settings' ranges beside itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Choice:
    values: tuple[Any, ...]

    def at_border(self, value: Any) -> bool:
        """A set of names has no border; the least and the largest of numbers are one, but for zero, which means 'none'."""
        if not all(isinstance(one, (int, float)) and not isinstance(one, bool) for one in self.values):
            return False
        return value in (min(self.values), max(self.values)) and value != 0


@dataclass(frozen=True)
class Real:
    """A number from low to high, even on a logarithmic scale unless log=False."""

    low: float
    high: float
    log: bool = True

    def at_border(self, value: Any) -> bool:
        """Within a twentieth of the range of one of its ends."""
        from math import log

        scale = log if self.log else float
        place = (scale(value) - scale(self.low)) / (scale(self.high) - scale(self.low))
        return not 0.05 < place < 0.95


Space = Choice | Real
FACTORS = Choice((8, 16, 32, 64, 128))
SCALE = Choice((0.01, 0.1))
DROPOUT = Choice((0.0, 0.1, 0.2, 0.3, 0.5))
