"""What is suspicious in the times of a dataset, and which rows share theirs: a history needs an order."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt
import polars as pl

from gmlfm.data.dataset import Dataset
from gmlfm.data.event_order import places_in_file

_FEWEST_PAIRS = 30  # fewer neighbours may lie in order by chance
_MOST_IN_ORDER = 0.8  # of neighbours; by chance half
_DAY = 86_400
_FIRST, _LAST = 6e8, 4.1e9  # seconds since 1970, of 1989 and 2099: times around the middle there are taken for moments
_UNITS = (1, 10**3, 10**6, 10**9)  # a second's


def tied_share(data: Dataset) -> float | None:
    """The share of positive rows whose user has another row of the same time; None without times."""
    if "time" not in data.interactions.columns:
        return None
    events = _events(data)
    tied = events.filter(pl.len().over("user", "time") > 1)
    return int(tied["is_positive"].sum()) / max(len(data.positive_rows), 1)


def suspicious_times(data: Dataset) -> list[str]:
    if "time" not in data.interactions.columns:
        return []
    times = data.interactions["time"]
    if times.n_unique() == 1 and len(times) > 1:
        nothing = " No row is history of another (ties = strict)." if data.schema.interactions.ties == "strict" else ""
        return [f"all times are equal: only the order of the file tells what came last.{nothing}"]
    return [*_last_ties(data), *_ties_in_order_of_items(data), *_future(times)]


def _last_ties(data: Dataset) -> list[str]:
    by_user = data.interactions.select("user", "time").group_by("user")
    ties = by_user.agg(((pl.col("time") == pl.col("time").max()).sum() > 1).alias("tied"))["tied"]
    n_tied = int(ties.sum())
    if n_tied <= 0.1 * len(ties):
        return []
    return [f"{n_tied:,} of {len(ties):,} users tie on their last time: there the order of the file decides what is tested."]


def _ties_in_order_of_items(data: Dataset) -> list[str]:
    """Of neighbours in the file that share user and time, how many lie in order of the item's id."""
    events = _events(data).sort("user", "time", "place")
    same = (pl.col("user") == pl.col("user").shift(1)) & (pl.col("time") == pl.col("time").shift(1))
    ranks = _ranks(data.items.ids)[events["item"].to_numpy()]
    steps = np.diff(ranks, prepend=0)[events.select(same.fill_null(False)).to_series().to_numpy()]
    n_up, n_down = int((steps > 0).sum()), int((steps < 0).sum())
    n_pairs = n_up + n_down
    if n_pairs < _FEWEST_PAIRS or max(n_up, n_down) <= _MOST_IN_ORDER * n_pairs:
        return []
    direction = "ascending" if n_up > n_down else "descending"
    advice = {
        "strict": "ties = strict (the default) ignores it",
        "shuffle": "ties = shuffle removes it",
        "file": "so leave ties = file out: strict, the default, ignores it",
    }
    return [
        f"{max(n_up, n_down) / n_pairs:.0%} of {n_pairs:,} neighbouring rows of one user and time lie in {direction} order of "
        f"the item's id (by chance 50%): an accident of the file that a model of sequences would learn; "
        f"{advice[data.schema.interactions.ties]}."
    ]


def _future(times: pl.Series) -> list[str]:
    """Times after now; said only of numbers that look like moments, which dates and date texts do."""
    middle, latest = times.median(), times.max()
    if middle is None:
        return []
    unit = next((unit for unit in _UNITS if _FIRST <= float(middle) / unit <= _LAST), None)  # type: ignore[arg-type]
    if unit is None:
        return []
    n_late = int((times > (time.time() + _DAY) * unit).sum())  # a day more: zones
    if n_late == 0:
        return []
    seconds = float(latest) / unit  # type: ignore[arg-type]
    moment = datetime.fromtimestamp(seconds, UTC).date().isoformat() if seconds < 2.5e11 else "beyond the year 9000"
    return [f"{n_late:,} interactions have a time in the future (the latest: {moment}); they count as the latest rows."]


def _events(data: Dataset) -> pl.DataFrame:
    """user, item, time, place in the file and is_positive, of positive rows and of history alone that have a time."""
    others = data.history_rows
    places = places_in_file(data.n_interactions, others["before"].to_numpy())
    names = ["user", "item", "time", "place", "is_positive"]
    rows = data.interactions.with_columns(pl.col("positive").alias("is_positive"), pl.Series("place", places[0]))
    tables = [rows.filter("is_positive").select(names)]
    if others.height:
        tables.append(others.with_columns(pl.Series("place", places[1]), pl.lit(False).alias("is_positive")).select(names))
    return pl.concat(tables).drop_nulls("time")


def _ranks(ids: pl.Series) -> npt.NDArray[np.int64]:
    """The rank of each id, as a number where all are."""
    numbers = ids.cast(pl.Int64, strict=False)
    return (ids if numbers.null_count() else numbers).rank("ordinal").to_numpy().astype(np.int64)
