"""What the interactions of a prepared folder say of each item, read shard by shard."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from gmlfm.data.availability import NEVER_ENDS, Times, refuse_other_scale, tell_untimed
from gmlfm.data.counting import ItemTally
from gmlfm.data.splits import TRAIN
from gmlfm.data.time_keys import time_keys, time_of_key

Flags = npt.NDArray[np.bool_]
_ALWAYS = np.iinfo(np.int64).min


@dataclass(frozen=True)
class ItemBounds:
    """From when until when each item can be had, as time keys by item number.

    The same as Availability of data in memory, but for the scale: there times are numbered, here they are their keys.
    """

    start: Times
    end: Times
    as_float: bool

    def keys(self, times: pl.Series) -> Times:
        """Times of interactions on the scale of start and end."""
        return time_keys(times.cast(pl.Float64) if self.as_float else times)


@dataclass(frozen=True)
class Occurrences:
    """By item number. is_seen: it occurs in some row of any part; is_repeated: in more than one; is_trained: the
    training part has a positive of it."""

    is_seen: Flags
    is_repeated: Flags
    is_trained: Flags

    @classmethod
    def over(cls, shards: Iterable[pl.DataFrame], n_items: int) -> Occurrences:
        """shards: frames with the columns item, part and positive."""
        tally, is_trained = ItemTally(n_items), np.zeros(n_items, bool)
        for rows in shards:
            tally.add(rows["item"].to_numpy())
            is_trained[rows.filter(pl.col("positive") & (pl.col("part") == TRAIN))["item"].to_numpy()] = True
        return cls(tally.is_seen, tally.is_repeated, is_trained)


def bounds_of(shards: Iterable[pl.DataFrame], listed: pl.Series, single_unit: Flags, time_is_float: bool) -> ItemBounds | None:
    """None where a row has no time, which is told.

    shards: frames with the columns item and time; listed, single_unit: by item.
    """
    as_float = time_is_float or listed.dtype.is_float()
    is_listed = listed.is_not_null().to_numpy()
    start = np.full(len(listed), _ALWAYS, np.int64)
    start[is_listed] = time_keys(listed.drop_nulls().cast(pl.Float64) if as_float else listed.drop_nulls())
    end = np.full(len(listed), NEVER_ENDS, np.int64)
    n_untimed = 0
    for rows in shards:
        n_untimed += rows["time"].null_count()
        if n_untimed:
            continue
        items = rows["item"].to_numpy()
        times, is_sale = time_keys(rows["time"].cast(pl.Float64) if as_float else rows["time"]), single_unit[items]
        end[items[is_sale]] = times[is_sale]
    if n_untimed:
        tell_untimed(n_untimed)
        return None
    refuse_other_scale(start, end, is_listed, lambda key: time_of_key(key, as_float))
    return ItemBounds(np.minimum(start, end), end, as_float)
