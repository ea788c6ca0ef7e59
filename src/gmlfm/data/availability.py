"""When items that sell once can be had: from their listing to their sale."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from gmlfm.errors import DataError

Times = npt.NDArray[np.int64]
_LOG = logging.getLogger("gmlfm")
NEVER_ENDS = int(np.iinfo(np.int64).max)
_SINGLE_UNIT_SHARE = 0.9


def look_single_unit(n_sold_once: int, n_sold: int) -> bool:
    """Whether items seem to sell once: nine in ten sold items have one row."""
    return n_sold_once >= _SINGLE_UNIT_SHARE * n_sold


def tell_untimed(n_rows: int) -> None:
    """Of rows without a time, for which nothing can be said of what could be had."""
    _LOG.warning(
        "%s of the interactions have no time, so it is not known what could be had when: times of listing and of sales are not "
        "used; give these rows a time, or leave them out (where).",
        f"{n_rows:,}",
    )


@dataclass(frozen=True)
class Availability:
    """Times as whole numbers in their order, on one scale: row_times by interaction, start and end by item.

    Item i can be had at row r where start[i] <= row_times[r] <= end[i]: it is listed, and not sold before. An item that does
    not sell once, or was never sold, has no end; one without a listing time has always been there.
    """

    row_times: Times
    start: Times
    end: Times

    @classmethod
    def of(
        cls,
        times: pl.Series,
        items: npt.NDArray[np.int32],
        listed: pl.Series,
        single_unit: npt.NDArray[np.bool_],
    ) -> Availability:
        """times, items: of the interactions; listed, single_unit: by item."""
        moments, listings = times.to_numpy(), listed.drop_nulls().to_numpy()
        distinct, codes = np.unique(np.concatenate([moments, listings]), return_inverse=True)
        row_times = codes[: len(moments)].astype(np.int64)
        start = np.full(len(listed), -1, np.int64)
        start[listed.is_not_null().to_numpy()] = codes[len(moments) :]
        end = np.full(len(listed), NEVER_ENDS)
        is_sale = single_unit[items]
        end[items[is_sale]] = row_times[is_sale]
        refuse_other_scale(start, end, start >= 0, lambda time: distinct[time])
        return cls(row_times, np.minimum(start, end), end)

    def is_available(self, items: npt.NDArray[np.integer[Any]], times: Times) -> npt.NDArray[np.bool_]:
        """Whether each item can be had at the time beside it."""
        result: npt.NDArray[np.bool_] = (self.start[items] <= times) & (times <= self.end[items])
        return result


def refuse_other_scale(start: Times, end: Times, has_listing: npt.NDArray[np.bool_], moment: Callable[[int], object]) -> None:
    """Refuse listing times of which most lie after the sale. moment: the caller's time behind a start or an end."""
    is_sold = (end < NEVER_ENDS) & has_listing
    is_late = is_sold & (start > end)
    if 2 * int(is_late.sum()) > int(is_sold.sum()):
        item = int(np.argmax(is_late))
        raise DataError(
            f"{int(is_late.sum()):,} of {int(is_sold.sum()):,} items are listed after their sale, such as one listed at "
            f"{moment(int(start[item]))} and sold at {moment(int(end[item]))}; are listed and time written alike?"
        )
