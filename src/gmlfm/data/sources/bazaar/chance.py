"""Random draws that are the same on every machine and with every NumPy.

NumPy promises the raw output of a bit generator, not the streams of its distributions, and its vector exp and log differ
in the last bit between processors. So every draw here is a table looked up by raw bits, and every table is rounded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_TABLE = 1 << 14


def _table(quantile: object) -> Floats:
    assert callable(quantile)
    return np.array([round(quantile((step + 0.5) / _TABLE), 9) for step in range(_TABLE)])


_NORMAL = _table(NormalDist().inv_cdf)
_GUMBEL = _table(lambda share: -math.log(-math.log(share)))
_EXPONENTIAL = _table(lambda share: -math.log(1.0 - share))


class Chance:
    """A stream of draws named by whole numbers: Chance(seed, part, block)."""

    def __init__(self, *name: int) -> None:
        self._bits = np.random.PCG64(np.random.SeedSequence(list(name)))

    def uniform(self, n: int) -> Floats:
        """In [0, 1), 53 bits."""
        return (self._bits.random_raw(n) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def below(self, n: int, high: int | Ints) -> Ints:
        """Whole numbers from 0 to high - 1."""
        drawn: Ints = np.minimum((self.uniform(n) * high).astype(np.int64), np.asarray(high) - 1)
        return drawn

    def normal(self, n: int) -> Floats:
        return _NORMAL[self._steps(n)]

    def gumbel(self, n: int) -> Floats:
        return _GUMBEL[self._steps(n)]

    def exponential(self, n: int) -> Floats:
        """With mean 1."""
        return _EXPONENTIAL[self._steps(n)]

    def _steps(self, n: int) -> Ints:
        return (self._bits.random_raw(n) >> np.uint64(64 - 14)).astype(np.int64)

    def choose(self, n: int, weights: Sequence[float] | Floats) -> Ints:
        """Positions drawn by weight, in steps of one in 16,384: a table is ten times as fast as a search."""
        ends = np.rint(np.cumsum(np.asarray(weights, np.float64)) / np.sum(weights) * _TABLE).astype(np.int64)
        return np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0))[self._steps(n)]
