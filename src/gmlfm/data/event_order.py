"""The order in which events of a user count as earlier and later: by time, and among equal times as `ties` says."""

from __future__ import annotations

import zlib

import numpy as np
import numpy.typing as npt
import polars as pl

from gmlfm.data.schema import Ties
from gmlfm.data.times import in_order

Places = npt.NDArray[np.int64]
_MIXERS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))


def places_in_file(n_rows: int, before: Places) -> tuple[Places, Places]:
    """Of n rows and of others that stand between them, `before[j]` rows before the j-th: the places of both in the file."""
    rows = np.arange(n_rows, dtype=np.int64)
    return rows + np.searchsorted(before, rows, side="right"), before + np.arange(len(before), dtype=np.int64)


def event_order(
    ties: Ties, users: npt.NDArray[np.int32], user_ids: pl.Series, times: pl.Series | None, places: Places
) -> Places:
    """A number for each row, smaller for what counts as earlier; equal for rows that are no history of each other.

    strict: the rank of the time, so that equal times are equal. file and shuffle: all numbers differ; among equal times the
    place in the file decides, or the same random draw every time. A row without a time counts as earliest.
    """
    if times is None:
        return np.zeros(len(users), np.int64) if ties == "strict" else places
    moments = in_order(times)
    if ties == "strict":
        return np.unique(moments, return_inverse=True)[1].astype(np.int64)
    draw = np.zeros(len(users), np.uint64) if ties == "file" else _draw(users, user_ids, places)
    order = np.empty(len(users), np.int64)
    order[np.lexsort((places, draw, moments))] = np.arange(len(users))
    return order


def _draw(users: npt.NDArray[np.int32], user_ids: pl.Series, places: Places) -> npt.NDArray[np.uint64]:
    """A pseudo-random number a row, made of the user's id and of how many rows of the user stand before it.

    So the other users' draws stay when a user is forgotten, and all stay when rows are added behind.
    """
    by_user = np.lexsort((places, users))
    sorted_users = users[by_user]
    starts = np.flatnonzero(np.diff(sorted_users, prepend=-1))
    lengths = np.diff(np.append(starts, len(users)))
    count = np.empty(len(users), np.uint64)
    count[by_user] = np.arange(len(users)) - np.repeat(starts, lengths)
    checksums = np.fromiter((zlib.crc32(text.encode()) for text in user_ids.to_list()), np.uint64, len(user_ids))
    mixed: npt.NDArray[np.uint64] = (checksums[users] << np.uint64(32)) + count
    mixed *= np.uint64(0x9E3779B97F4A7C15)  # splitmix64, whose steps wrap around
    for shift, factor in _MIXERS:
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(31))
