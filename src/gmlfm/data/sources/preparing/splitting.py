"""Gives the rows of numbered buckets their parts, by a rule that is chosen over all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from gmlfm.data.availability import look_single_unit
from gmlfm.data.counting import ItemTally
from gmlfm.data.sources.preparing.plan import Plan, read_done, read_work
from gmlfm.data.split_rules import NO_TEST_NOTE, NO_TIME_NOTE, auto_split, time_cuts
from gmlfm.data.splits import AUTO, SPLITS, TEST, TRAIN, VALIDATION, leave_last_out, random_parts
from gmlfm.data.time_keys import Keys, order_statistics, time_keys
from gmlfm.errors import DataError, OptionError, did_you_mean

PREPARED_SPLITS = (AUTO, "leave-one-out", "random", "global-time", "none")
_SEED = 0
_RANDOM_SHARES = (0.2, 0.1)  # of validation and test, as the splits in memory have them
_TIME_SHARES = (0.1, 0.1)


def check_prepared_split(name: str) -> None:
    if name in PREPARED_SPLITS:
        return
    names = f"{', '.join(PREPARED_SPLITS[:-1])} or {PREPARED_SPLITS[-1]}"
    if name in SPLITS:
        raise OptionError(
            f"the split '{name}' looks at all rows of a user and an item at once, which a preparation never holds; "
            f"choose {names}, or train from memory."
        )
    raise OptionError(f"split is '{name}'{did_you_mean(name, PREPARED_SPLITS)}")


@dataclass(frozen=True)
class Splitter:
    """A split by name. cuts: for global-time the keys of the last training time and of the last validation time."""

    name: str
    sells_once: bool
    cuts: tuple[int, int] = (0, 0)

    def with_parts(self, rows: pl.DataFrame, shard: int) -> pl.DataFrame:
        """A shard's rows with their column `part`; all rows of a user are in one shard."""
        return rows.with_columns(pl.Series("part", self._parts(rows, shard)))

    def _parts(self, rows: pl.DataFrame, shard: int) -> npt.NDArray[np.int8]:
        parts = np.full(rows.height, TRAIN, np.int8)
        if self.name == "leave-one-out":
            # Over the positives in the order of time, then of the file; other rows are trained on, if a task does.
            keys = ["time"] if "time" in rows.columns else []
            positives = rows.select("user", *keys, "positive").with_row_index("row").filter("positive")
            ordered = positives.sort(*keys, "row", nulls_last=False)
            parts[ordered["row"].to_numpy()] = leave_last_out(ordered["user"].to_numpy())
        elif self.name == "random":
            rng, is_positive = np.random.default_rng([_SEED, shard]), rows["positive"].to_numpy()
            for chosen in (is_positive, ~is_positive):  # in the same shares, whichever rows a task learns from
                parts[chosen] = random_parts(int(chosen.sum()), *_RANDOM_SHARES, rng)
        elif self.name == "global-time":
            times = time_keys(rows["time"])
            parts[times > self.cuts[0]] = VALIDATION
            parts[times > self.cuts[1]] = TEST
        return parts


def choose_split(plan: Plan, n_items: int) -> Splitter:
    """Decide over all rows whether items sell once, what `auto` stands for, and where time is cut."""
    tally, n_missing, n_positives = ItemTally(n_items), 0, 0
    declares_time = plan.schema.interactions.time is not None
    for number in range(n_shards(plan)):
        plan.progress("splitting", number, n_shards(plan))
        rows = read_rows(plan, number, ["item", "positive", *(["time"] if declares_time else [])])
        positives = rows.filter("positive")
        tally.add(positives["item"].to_numpy())
        n_positives += positives.height
        n_missing += rows["time"].null_count() if declares_time else 0
    declared = "auto" if plan.schema.items is None else plan.schema.items.sells_once
    n_sold, n_repeated = int(tally.is_seen.sum()), int(tally.is_repeated.sum())
    sells_once = look_single_unit(n_sold - n_repeated, n_sold) if declared == "auto" else bool(declared)
    name = plan.split
    if name == AUTO:
        name, reason = auto_split("topn", declares_time=declares_time, has_all_times=n_missing == 0, sells_once=sells_once)
        plan.notes += [reason] if reason else []
    if name == "global-time":
        return _cut_by_time(plan, sells_once, n_positives, n_missing)
    if name == "leave-one-out" and not declares_time:
        plan.notes.append(NO_TIME_NOTE)
    return Splitter(name, sells_once)


def _cut_by_time(plan: Plan, sells_once: bool, n_positives: int, n_missing: int) -> Splitter:
    if plan.schema.interactions.time is None:
        raise DataError(
            f"the split 'global-time' needs times, but dataset '{plan.schema.name}' declares none; set [interactions] time."
        )
    if n_missing:
        raise DataError(f"the split 'global-time' needs a time in every row; {n_missing:,} rows have none.")
    places = [*time_cuts(n_positives, *_TIME_SHARES), n_positives - 1]
    last_train, last_validation, last = order_statistics(lambda: _positive_times(plan), places)
    if last <= last_validation:
        plan.notes.append(NO_TEST_NOTE)
    return Splitter("global-time", sells_once, (last_train, last_validation))


def _positive_times(plan: Plan) -> Iterator[Keys]:
    for number in range(n_shards(plan)):
        yield time_keys(read_rows(plan, number, ["positive", "time"]).filter("positive")["time"])


def n_shards(plan: Plan) -> int:
    return len(_files(plan))


def read_rows(plan: Plan, shard: int, columns: Sequence[str] | None = None) -> pl.DataFrame:
    """A shard's numbered rows, all of them or some columns; times have the same type in every shard."""
    return _with_time_type(plan, read_work(_files(plan)[shard], None if columns is None else list(columns)))


def read_history(plan: Plan, shard: int) -> pl.DataFrame | None:
    """The rows of a shard's users that count as history alone; None where there are none."""
    path = _files(plan)[shard].with_name("history.parquet")
    return _with_time_type(plan, read_work(path)) if path.exists() else None


def _with_time_type(plan: Plan, rows: pl.DataFrame) -> pl.DataFrame:
    if "time" not in rows.columns:
        return rows
    done = read_done(plan.work / "interactions" / "done.json")
    return rows.with_columns(pl.col("time").cast(pl.Float64 if done["time_is_float"] else pl.Int64))


def _files(plan: Plan) -> list[Path]:
    return sorted((plan.work / "numbered-users").glob("[0-9]*/rows.parquet"))
