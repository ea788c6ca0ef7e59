"""A prepared folder: a dataset encoded, split and cut into shards, read shard by shard. docs/prepared.md
describes the layout, which any engine may write.

    prepared.json                   what is here: counts, fields, split, shards
    values.parquet                  field, value: the text of each value row, in row order
    users/NNNNN.parquet             number, id, rows, x, the fields as they came (and title); numbers ascending over shards
    items/NNNNN.parquet             the same (and listed: the time from which it could be had)
    interactions/NNNNN.parquet      user, item, part (and time, label, weight, rows, x): all rows of a user in one shard
    history/NNNNN.parquet           user, item, before, is_had (and time): the rows of the same users that are history alone
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from gmlfm.data.attributes import PADDING, AttributeTable
from gmlfm.data.columns import without_prefix
from gmlfm.data.events import HISTORY_COLUMNS, no_history
from gmlfm.data.occurrences import ItemBounds, Occurrences, bounds_of
from gmlfm.data.prepared_info import FORMAT, PreparedInfo, ShardInfo, read_info
from gmlfm.data.prepared_layout import check_table, numbers_below
from gmlfm.errors import DataError
from gmlfm.reading import READ_ERRORS, parse_json, read_parquet, reason
from gmlfm.storage import new_file, sha256_of, write_text
from gmlfm.streams import read_text

__all__ = ["CACHE", "FORMAT", "PreparedData", "PreparedInfo", "Shard", "ShardInfo", "padded", "unpadded", "write_header"]

CACHE = "cache"


@dataclass(frozen=True)
class Shard:
    """Some users' interactions, in memory. `context` has width 0 where the dataset has no context."""

    number: int
    users: npt.NDArray[np.int32]
    items: npt.NDArray[np.int32]
    parts: npt.NDArray[np.int8]
    context: AttributeTable
    columns: pl.DataFrame  # time, label, weight, positive, where declared


class PreparedData:
    """Reads a prepared folder. Sides are memory-mapped, interactions come shard by shard."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.info = read_info(self.folder)

    @cached_property
    def _verified(self) -> set[str]:
        """The files whose checksums have been verified."""
        return set()

    @property
    def n_rows(self) -> int:
        return self.info.fields[-1].end

    @property
    def n_shards(self) -> int:
        return len(self.info.interactions)

    @cached_property
    def users(self) -> AttributeTable:
        return self._side("users", "user", self.info.users)

    @cached_property
    def items(self) -> AttributeTable:
        return self._side("items", "item", self.info.items)

    @cached_property
    def values(self) -> pl.DataFrame:
        """field, value: the texts of value rows, but for ids."""
        return self._table("values.parquet")

    def shards(self, rank: int = 0, of: int = 1) -> Iterator[Shard]:
        """Every shard, or those of one of several readers: shard s belongs to reader s mod `of`."""
        for number in range(rank, self.n_shards, of):
            yield self.shard(number)

    def shard(self, number: int) -> Shard:
        frame = self.interactions(number)
        encoded = ("user", "item", "part", "rows", "x")
        columns = frame.select(name for name in frame.columns if name not in encoded and not name.startswith("context "))
        with self.fitting(f"interactions/{self.info.interactions[number].name}.parquet"):
            context = self._context_attributes(frame) if self.info.widths["context"] else _no_context(frame.height)
        return Shard(number, frame["user"].to_numpy(), frame["item"].to_numpy(), frame["part"].to_numpy(), context, columns)

    def _context_attributes(self, frame: pl.DataFrame) -> AttributeTable:
        return padded(frame["rows"], frame["x"], self.info.widths["context"], self.n_rows)

    @cached_property
    def occurrences(self) -> Occurrences:
        """Which items have rows, over all parts; read once."""
        shards = (self.interactions(number, ["item", "part", "positive"]) for number in range(self.n_shards))
        with self.fitting("interactions"):
            return Occurrences.over(shards, self.info.n_items)

    @cached_property
    def single_unit_items(self) -> npt.NDArray[np.bool_]:
        """As Dataset.single_unit_items: where items sell once, those with more than one row are exempt one by one."""
        return ~self.occurrences.is_repeated if self.info.sells_once else np.zeros(self.info.n_items, bool)

    @cached_property
    def bounds(self) -> ItemBounds | None:
        """As Dataset.availability: None unless items sell once, listing times are declared and every row has a time."""
        listed = self._listed if self.info.sells_once and "time" in self.info.columns else None
        return None if listed is None else self._bounds(listed, self.single_unit_items)

    @cached_property
    def row_bounds(self) -> ItemBounds | None:
        """As row_availability: what could be had at the time of each row, by listing times and, where the split is by time, by
        sales; None where that is everything."""
        ends = self.info.sells_once and self.info.split == "global-time"
        if "time" not in self.info.columns or (self._listed is None and not ends):
            return None
        if ends and self._listed is not None:
            return self.bounds
        listed = self._listed
        if listed is None:
            listed = pl.Series("listed", [None], dtype=self._time_type).new_from_index(0, self.info.n_items)
        return self._bounds(listed, self.single_unit_items if ends else np.zeros(self.info.n_items, bool))

    @cached_property
    def _listed(self) -> pl.Series | None:
        """The time from which each item could be had; None where none is declared."""
        names = [f"items/{shard.name}.parquet" for shard in self.info.items]
        if "listed" not in self._table(names[0]).columns:
            return None
        with self.fitting("items"):
            return pl.concat(self._table(name, ["listed"])["listed"] for name in names)

    @property
    def _time_type(self) -> pl.DataType:
        return self.interactions(0, ["time"])["time"].dtype

    def _bounds(self, listed: pl.Series, single_unit: npt.NDArray[np.bool_]) -> ItemBounds | None:
        with self.fitting("items"):
            shards = (self.interactions(number, ["item", "time"]) for number in range(self.n_shards))
            return bounds_of(shards, listed, single_unit, self._time_type.is_float())

    def side(self, side: Literal["users", "items"]) -> pl.DataFrame:
        """id, the fields as 'field NAME', the title and the listing time, if there are, by number."""
        shards = self.info.users if side == "users" else self.info.items
        with self.fitting(side):
            return pl.concat(self._table(f"{side}/{shard.name}.parquet").drop("number", "rows", "x") for shard in shards)

    def context(self, number: int) -> pl.DataFrame:
        """The context fields of one shard's interactions, as they came."""
        return without_prefix(self.interactions(number), "context ")

    def interactions(self, number: int, columns: list[str] | None = None) -> pl.DataFrame:
        """One shard's file, all of it or some columns."""
        shard = self.info.interactions[number]
        frame = self._table(f"interactions/{shard.name}.parquet", columns)
        with self.fitting(f"interactions/{shard.name}.parquet"):
            if frame.height != shard.rows:
                raise ValueError(f"it has {frame.height:,} rows instead of {shard.rows:,}")
        return frame

    def history_rows(self, number: int) -> pl.DataFrame:
        """The rows of a shard's users that count as history alone, as Dataset.history_rows: `before` counts its rows."""
        shard = self.info.interactions[number]
        n_rows = {other.name: other.rows for other in self.info.history}.get(shard.name)
        if n_rows is None:
            return no_history()
        name = f"history/{shard.name}.parquet"
        frame = self._table(name)
        with self.fitting(name):
            if frame.height != n_rows or frame["before"].max() > shard.rows:  # type: ignore[operator]
                raise ValueError(f"it has {frame.height:,} rows instead of {n_rows:,}, or stands between others than there are")
            names = [*HISTORY_COLUMNS, *(["time"] if "time" in frame.columns else [])]
            return frame.select(names).cast(HISTORY_COLUMNS)  # type: ignore[arg-type]

    @cached_property
    def is_ordered(self) -> bool:
        """As histories.is_ordered: whether it can be said what came before a row, over all shards."""
        if self.info.ties != "strict":
            return True
        if "time" not in self.info.columns:
            return False
        moments: set[Any] = set()
        for number in range(self.n_shards):
            frames = [self.interactions(number, ["time"])["time"], self.history_rows(number).get_column("time", default=None)]
            for times in frames:
                moments |= (
                    {times.min(), times.max(), *([None] if times.null_count() else [])}
                    if times is not None and len(times)
                    else set()
                )
            if len(moments) > 1:
                return True
        return False

    def users_beside(self, users: npt.NDArray[np.int32]) -> range:
        """The numbers of all users of the files in users/ that have some users, which are not empty: the least range of
        whole files. Where a bucket became a file, as here, those are the users of a shard."""
        stops = np.cumsum([shard.rows for shard in self.info.users])
        first, last = np.searchsorted(stops, [users.min(), users.max()], side="right")
        return range(int(stops[first] - self.info.users[first].rows), int(stops[last]))

    def user_ids(self, users: range) -> pl.Series:
        """The ids of the users of such a range."""
        stops = np.cumsum([shard.rows for shard in self.info.users])
        first, last = np.searchsorted(stops, [users.start, users.stop - 1], side="right")
        return pl.concat(
            self._table(f"users/{shard.name}.parquet", ["id"])["id"] for shard in self.info.users[first : last + 1]
        )

    def _table(self, name: str, columns: list[str] | None = None) -> pl.DataFrame:
        """One file of the folder; its checksum, where there is one, is verified when it is first read."""
        path = self.folder / name
        try:
            checksum = None if name in self._verified else self.info.checksums.get(name)
            if checksum is not None and sha256_of(path) != checksum:
                raise ValueError("its content does not fit its checksum")
            self._verified.add(name)
            frame = read_parquet(path, columns)
        except READ_ERRORS as error:
            raise DataError(f"{path} is missing or damaged ({reason(error)}); prepare the data again.") from error
        with self.fitting(name):
            check_table(name.partition("/")[0].removesuffix(".parquet"), frame, self.info, is_whole=columns is None)
        return frame

    @contextmanager
    def fitting(self, name: str = "") -> Iterator[None]:
        """Turns what does not fit prepared.json into one sentence: any engine may write a folder."""
        try:
            yield
        except READ_ERRORS as error:
            raise DataError(
                f"{self.folder / name} does not fit prepared.json ({reason(error)}); prepare the data again."
            ) from error

    def _side(self, folder: str, part: str, shards: tuple[ShardInfo, ...]) -> AttributeTable:
        """Memory-mapped arrays, written beside the Parquet files on first use and again where they are damaged."""
        shape = (sum(shard.rows for shard in shards), self.info.widths[part])
        paths = {kind: self.folder / CACHE / f"{folder}.{kind}.npy" for kind in ("ids", "values")}
        written = self.folder / CACHE / f"{folder}.json"
        if not _is_whole(written, paths):
            with new_file(paths["ids"]) as ids_draft, new_file(paths["values"]) as values_draft:
                with ids_draft.open("wb") as ids, values_draft.open("wb") as values:
                    write_header(ids, np.int32, shape)
                    write_header(values, np.float32, shape)
                    for shard in shards:
                        frame = self._table(f"{folder}/{shard.name}.parquet")
                        with self.fitting(f"{folder}/{shard.name}.parquet"):
                            table = padded(frame["rows"], frame["x"], shape[1], self.n_rows)
                            if len(table) != shard.rows:
                                raise ValueError(f"{len(table):,} rows")
                        table.ids.tofile(ids)
                        table.values.tofile(values)
            write_text(written, json.dumps({kind: sha256_of(path) for kind, path in paths.items()}) + "\n")
        with self.fitting(CACHE):
            arrays = [np.load(path, mmap_mode="r") for path in paths.values()]
            if any(array.shape != shape for array in arrays):
                raise ValueError(f"arrays of {arrays[0].shape} and {arrays[1].shape}")
        return AttributeTable(*arrays)


def _is_whole(written: Path, paths: dict[str, Path]) -> bool:
    """Whether a cache is what was written: not cut short by a crash, nor damaged since."""
    try:
        checksums = parse_json(read_text(written, 1 << 16))
        return all(sha256_of(path) == checksums[kind] for kind, path in paths.items())
    except (DataError, *READ_ERRORS):
        return False


def padded(rows: pl.Series, x: pl.Series, width: int, n_rows: int | None = None) -> AttributeTable:
    """Lists of attribute rows and their x as two padded arrays. n_rows: how many there are in all; rows beyond are refused."""
    lengths = rows.list.len().to_numpy().astype(np.int64)
    flat = rows.explode(empty_as_null=False)
    if n_rows is not None:
        numbers_below(flat, n_rows)
    entity = np.repeat(np.arange(len(lengths)), lengths)
    column = np.arange(len(entity)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    ids = np.full((len(lengths), width), PADDING, np.int32)
    values = np.zeros((len(lengths), width), np.float32)
    ids[entity, column] = flat.to_numpy()
    values[entity, column] = x.explode(empty_as_null=False).to_numpy()
    return AttributeTable(ids, values)


def unpadded(table: AttributeTable) -> tuple[pl.Series, pl.Series]:
    """The opposite: for each entity a list of rows and a list of x."""
    is_present = table.ids != PADDING
    entity = np.nonzero(is_present)[0]
    flat = pl.DataFrame({"entity": entity, "rows": table.ids[is_present], "x": table.values[is_present]})
    lists = flat.group_by("entity", maintain_order=True).agg("rows", "x")
    if lists.height < len(table):
        entities = pl.DataFrame({"entity": np.arange(len(table))})
        lists = entities.join(lists, on="entity", how="left", maintain_order="left").with_columns(
            pl.col("rows").fill_null(pl.lit([], pl.List(pl.Int32))), pl.col("x").fill_null(pl.lit([], pl.List(pl.Float32)))
        )
    return lists["rows"], lists["x"]


def write_header(file: IO[bytes], dtype: type, shape: tuple[int, int]) -> None:
    header = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
    file.flush()


def _no_context(n: int) -> AttributeTable:
    return AttributeTable(np.empty((n, 0), np.int32), np.empty((n, 0), np.float32))
