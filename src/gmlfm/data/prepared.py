"""A prepared folder: a dataset encoded, split and cut into shards, read shard by shard. docs/prepared.md
describes the layout, which any engine may write.

    prepared.json                   what is here: counts, fields, split, shards
    values.parquet                  field, value: the text of each value row, in row order
    users/NNNNN.parquet             number, id, rows, x, the fields as they came (and title); numbers ascending over shards
    items/NNNNN.parquet             the same (and listed: the time from which it could be had)
    interactions/NNNNN.parquet      user, item, part (and time, label, weight, rows, x): all rows of a user in one shard
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from gmlfm.data.attributes import PADDING, AttributeTable, FieldCode, Part
from gmlfm.data.columns import without_prefix
from gmlfm.data.occurrences import ItemBounds, Occurrences, bounds_of
from gmlfm.data.schema import Field, InteractionsSchema, Repeats, Schema, SideSchema
from gmlfm.errors import DataError
from gmlfm.storage import write_text

FORMAT = 3
CACHE = "cache"


@dataclass(frozen=True)
class ShardInfo:
    name: str
    rows: int
    train: int = 0
    validation: int = 0
    test: int = 0


@dataclass(frozen=True)
class PreparedInfo:
    """The content of prepared.json."""

    name: str
    source_hash: str
    split: str
    n_users: int
    n_items: int
    n_interactions: int
    fields: tuple[FieldCode, ...]
    widths: dict[str, int]
    columns: tuple[str, ...]
    users: tuple[ShardInfo, ...]
    items: tuple[ShardInfo, ...]
    interactions: tuple[ShardInfo, ...]
    user_id_type: str = "text"
    item_id_type: str = "text"
    notes: tuple[str, ...] = ()
    sells_once: bool = False
    repeats: Repeats = "merge"
    min_count: dict[str, int] = field(default_factory=dict)
    format: int = field(default=FORMAT)

    @property
    def schema(self) -> Schema:
        """What is declared, with the names that the folder's columns have."""

        def declared(part: Part) -> tuple[Field, ...]:
            codes = [code for code in self.fields if code.part == part]
            return tuple(Field(code.name, code.kind, weighting=code.weighting) for code in codes if code.kind != "id")

        time, label, weight = (name if name in self.columns else None for name in ("time", "label", "weight"))
        named = InteractionsSchema(user="user", item="item", time=time, label=label, weight=weight)
        return Schema(
            replace(named, repeats=self.repeats, context=declared("context")),
            self.name,
            SideSchema(id="user", fields=declared("user")),
            SideSchema(id="item", fields=declared("item"), sells_once=self.sells_once),
            self.min_count,
        )

    def write(self, folder: Path) -> None:
        write_text(folder / "prepared.json", json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n")


@dataclass(frozen=True)
class Shard:
    """Some users' interactions, in memory. `context` has width 0 where the dataset has no context."""

    users: npt.NDArray[np.int32]
    items: npt.NDArray[np.int32]
    parts: npt.NDArray[np.int8]
    context: AttributeTable
    columns: pl.DataFrame  # time, label, weight, positive, where declared


class PreparedData:
    """Reads a prepared folder. Sides are memory-mapped, interactions come shard by shard."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.info = _read_info(self.folder)

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
        return _parquet(self.folder / "values.parquet")

    def shards(self, rank: int = 0, of: int = 1) -> Iterator[Shard]:
        """Every shard, or those of one of several readers: shard s belongs to reader s mod `of`."""
        for number in range(rank, self.n_shards, of):
            yield self.shard(number)

    def shard(self, number: int) -> Shard:
        frame = self.interactions(number)
        encoded = ("user", "item", "part", "rows", "x")
        columns = frame.select(name for name in frame.columns if name not in encoded and not name.startswith("context "))
        context = self._context_attributes(frame) if self.info.widths["context"] else _no_context(frame.height)
        return Shard(frame["user"].to_numpy(), frame["item"].to_numpy(), frame["part"].to_numpy(), context, columns)

    def _context_attributes(self, frame: pl.DataFrame) -> AttributeTable:
        return padded(frame["rows"], frame["x"], self.info.widths["context"])

    @cached_property
    def occurrences(self) -> Occurrences:
        """Which items have rows, over all parts; read once."""
        shards = (self.interactions(number, ["item", "part", "positive"]) for number in range(self.n_shards))
        return Occurrences.over(shards, self.info.n_items)

    @cached_property
    def single_unit_items(self) -> npt.NDArray[np.bool_]:
        """As Dataset.single_unit_items: where items sell once, those with more than one row are exempt one by one."""
        return ~self.occurrences.is_repeated if self.info.sells_once else np.zeros(self.info.n_items, bool)

    @cached_property
    def bounds(self) -> ItemBounds | None:
        """As Dataset.availability: None unless items sell once, listing times are declared and every row has a time."""
        if not self.info.sells_once or "time" not in self.info.columns:
            return None
        names = [f"{shard.name}.parquet" for shard in self.info.items]
        if "listed" not in pl.read_parquet_schema(self.folder / "items" / names[0]):
            return None
        listed = pl.concat(_parquet(self.folder / "items" / name, ["listed"])["listed"] for name in names)
        time_type = self.interactions(0, ["time"])["time"].dtype
        shards = (self.interactions(number, ["item", "time"]) for number in range(self.n_shards))
        return bounds_of(shards, listed, self.single_unit_items, time_type.is_float())

    def side(self, side: Literal["users", "items"]) -> pl.DataFrame:
        """id, the fields as 'field NAME', the title and the listing time, if there are, by number."""
        shards = self.info.users if side == "users" else self.info.items
        return pl.concat(_parquet(self.folder / side / f"{shard.name}.parquet").drop("number", "rows", "x") for shard in shards)

    def context(self, number: int) -> pl.DataFrame:
        """The context fields of one shard's interactions, as they came."""
        return without_prefix(self.interactions(number), "context ")

    def interactions(self, number: int, columns: list[str] | None = None) -> pl.DataFrame:
        """One shard's file, all of it or some columns."""
        return _parquet(self.folder / "interactions" / f"{self.info.interactions[number].name}.parquet", columns)

    def _side(self, folder: str, part: str, shards: tuple[ShardInfo, ...], retried: bool = False) -> AttributeTable:
        """Memory-mapped arrays, written beside the Parquet files on first use."""
        width, total = self.info.widths[part], sum(shard.rows for shard in shards)
        paths = [self.folder / CACHE / f"{folder}.{kind}.npy" for kind in ("ids", "values")]
        if not all(path.exists() for path in paths):
            paths[0].parent.mkdir(exist_ok=True)
            drafts = [path.with_suffix(".part") for path in paths]
            with drafts[0].open("wb") as ids, drafts[1].open("wb") as values:
                write_header(ids, np.int32, (total, width))
                write_header(values, np.float32, (total, width))
                for shard in shards:
                    frame = _parquet(self.folder / folder / f"{shard.name}.parquet")
                    table = padded(frame["rows"], frame["x"], width)
                    table.ids.tofile(ids)
                    table.values.tofile(values)
            for draft, path in zip(drafts, paths, strict=True):
                draft.replace(path)
        try:
            return AttributeTable(np.load(paths[0], mmap_mode="r"), np.load(paths[1], mmap_mode="r"))
        except (ValueError, EOFError, OSError):
            if retried:
                raise DataError(f"{paths[0].parent} cannot be written and read back; is the disk full?") from None
            for path in paths:
                path.unlink(missing_ok=True)  # cut short by a crash; the Parquet files have it all
            return self._side(folder, part, shards, retried=True)


def padded(rows: pl.Series, x: pl.Series, width: int) -> AttributeTable:
    """Lists of attribute rows and their x as two padded arrays."""
    lengths = rows.list.len().to_numpy().astype(np.int64)
    entity = np.repeat(np.arange(len(lengths)), lengths)
    column = np.arange(len(entity)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    ids = np.full((len(lengths), width), PADDING, np.int32)
    values = np.zeros((len(lengths), width), np.float32)
    ids[entity, column] = rows.explode(empty_as_null=False).to_numpy()
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


def _parquet(path: Path, columns: list[str] | None = None) -> pl.DataFrame:
    try:
        return pl.read_parquet(path, columns=columns, hive_partitioning=False)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise DataError(f"{path} is missing or damaged ({str(error).splitlines()[0]}); prepare the data again.") from error


def _read_info(folder: Path) -> PreparedInfo:
    try:
        content: dict[str, Any] = json.loads((folder / "prepared.json").read_text(encoding="utf-8"))
        if content["format"] != FORMAT:
            raise DataError(
                f"{folder} was prepared in format {content['format']}, this version reads {FORMAT}; prepare it again."
            )
        content["fields"] = tuple(FieldCode(**code) for code in content["fields"])
        for key in ("users", "items", "interactions"):
            content[key] = tuple(ShardInfo(**shard) for shard in content[key])
        content["columns"], content["notes"] = tuple(content["columns"]), tuple(content["notes"])
        return PreparedInfo(**content)
    except FileNotFoundError as error:
        raise DataError(
            f"{folder} is no prepared folder: prepared.json is missing; make one with gmlfm data prepare."
        ) from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{folder / 'prepared.json'} cannot be understood ({error}).") from error
