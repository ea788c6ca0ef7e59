"""The column `because` of a recommendation: which of the user's earlier items adds most to the score."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from gmlfm.errors import NotSupportedError, OptionError
from gmlfm.fitting import FittedRun
from gmlfm.models.base import UserSide


def check_because(run: FittedRun) -> None:
    """Refuse a run whose scores are no sum over earlier items."""
    if not run.model.reads_history:
        raise OptionError(
            f"because names the earlier item that adds most to a score, but this run of '{run.settings.model}' does not read "
            "what users did before; leave because out, or train with history = last,recent,past (fm, gml-fm)."
        )
    nobody, nothing = np.zeros(0, np.int64), np.zeros((0, 0), np.int32)
    side = UserSide(nobody.astype(np.int32), run.encoded.user_side(nobody), run.histories.complete(nobody))
    try:
        run.model.strongest_earlier(side, nothing)
    except NotSupportedError as error:
        raise OptionError(
            f"because names the earlier item that adds most to a score, but that of '{run.settings.model}' is no sum over "
            "earlier items; leave because out, or take fm or gml-fm."
        ) from error


def because_column(run: FittedRun, numbers: npt.NDArray[np.int32]) -> pl.Series:
    """The items' titles where the data have them, otherwise their ids; null for -1."""
    ids, titles = run.encoder.ids_of_items(numbers), run.data.items.titles
    if titles is None:
        return ids.alias("because")
    called = titles.gather(pl.Series(np.maximum(numbers, 0), dtype=pl.UInt32)).set(pl.Series(numbers < 0), None)
    return called.fill_null(ids.cast(pl.String)).alias("because")
