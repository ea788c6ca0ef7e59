"""Rows of one table that another one has, too."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl


def are_known(old: pl.DataFrame, given: pl.DataFrame) -> npt.NDArray[np.bool_]:
    """Which of the given rows are among the old ones; what is missing is the same as what is missing."""
    flags = [rows.with_columns(pl.lit(is_old).alias("is old")) for rows, is_old in ((old, True), (given, False))]
    both = pl.concat(flags, how="vertical_relaxed")
    known = both.select(pl.col("is old").any().over(old.columns)).to_series().to_numpy()
    return np.asarray(known[old.height :], bool)
