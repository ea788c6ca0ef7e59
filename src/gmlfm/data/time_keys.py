"""Times as int64 keys in their order, and their order statistics in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

Keys = npt.NDArray[np.int64]
_LARGEST = np.int64(np.iinfo(np.int64).max)
_DIGIT_BITS = 16


def time_keys(times: pl.Series) -> Keys:
    """A key for each time, none of them missing: whole numbers as they are, floats by their bits.

    Read as an integer, a float's bits ascend with it; of a negative one all but the sign are flipped.
    """
    if not times.dtype.is_float():
        return times.to_numpy().astype(np.int64, copy=False)
    bits = (times.cast(pl.Float64).to_numpy() + 0.0).view(np.int64)  # adding 0 makes one of the two zeros
    keys: Keys = np.where(bits < 0, bits ^ _LARGEST, bits)
    return keys


def time_of_key(key: int, is_float: bool) -> float | int:
    """The time behind a key."""
    if not is_float:
        return key
    bits = np.int64(key)
    return float((bits ^ _LARGEST if bits < 0 else bits).view(np.float64))


def order_statistics(blocks: Callable[[], Iterable[Keys]], places: Sequence[int]) -> list[int]:
    """The keys at some places of the sorted whole, which is read block by block, four times, and never held.

    Digit by digit of 16 bits: the keys that agree with the digits known so far are counted by their next digit.
    """
    prefixes, left = [0] * len(places), list(places)
    for shift in range(64 - _DIGIT_BITS, -1, -_DIGIT_BITS):
        counts = np.zeros((len(places), 2**_DIGIT_BITS), np.int64)
        for block in blocks():
            unsigned = block.view(np.uint64) ^ np.uint64(1 << 63)  # ascends with the signed key
            digits = (unsigned >> np.uint64(shift)) & np.uint64(2**_DIGIT_BITS - 1)
            for index, prefix in enumerate(prefixes):
                # A shift by all 64 bits is undefined: of the first digit every key is counted.
                agrees = slice(None) if shift == 64 - _DIGIT_BITS else unsigned >> np.uint64(shift + _DIGIT_BITS) == prefix
                counts[index] += np.bincount(digits[agrees].astype(np.int64), minlength=2**_DIGIT_BITS)
        for index in range(len(places)):
            up_to = np.cumsum(counts[index])
            digit = int(np.searchsorted(up_to, left[index], side="right"))
            left[index] -= int(up_to[digit - 1]) if digit else 0
            prefixes[index] = prefixes[index] << _DIGIT_BITS | digit
    return [prefix - (1 << 63) for prefix in prefixes]
