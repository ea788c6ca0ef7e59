"""The market as the tables that a marketplace would export: in memory, or as Parquet files written block by block."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from gmlfm.data.dataset import Dataset
from gmlfm.data.schema import Field, InteractionsSchema, Schema, SideSchema
from gmlfm.data.schema_toml import to_toml
from gmlfm.data.sources.bazaar import world
from gmlfm.data.sources.bazaar.entities import Listings
from gmlfm.data.sources.bazaar.market import FIRST_DAY, Block, Market
from gmlfm.errors import DataError
from gmlfm.storage import new_folder, reporting_write_errors

SCHEMA = Schema(
    name="bazaar",
    interactions=InteractionsSchema(user="buyer", item="item", time="time", path="purchases/*.parquet"),
    users=SideSchema(id="buyer", path="buyers/*.parquet", fields=(Field("age", "category"), Field("region", "category"))),
    items=SideSchema(
        id="item",
        path="items/*.parquet",
        fields=(
            Field("genre", "category"),
            Field("category", "category"),
            Field("brand", "category"),
            Field("condition", "category"),
            Field("method", "category"),
            Field("origin", "category"),
            Field("duration", "category"),
            Field("payer", "category"),
            Field("price", "number"),
        ),
        title="title",
        listed="listed",
    ),
)
_BYTES_PER_PURCHASE = 80
_BYTES_PER_USER = 25


def bazaar_dataset(market: Market | None = None) -> Dataset:
    """The whole market in memory."""
    market = market or Market()
    blocks = list(market.blocks())
    items = pl.concat([_items(block, market, with_stocked=index == 0) for index, block in enumerate(blocks)])
    users = pl.concat([_users(block) for block in blocks])
    return Dataset.from_tables(
        pl.concat([_purchases(block) for block in blocks]), users, items, schema=replace(SCHEMA, name=market.name)
    )


def write_bazaar(market: Market, folder: Path, progress: Callable[[int, int], None] | None = None) -> None:
    """Write Parquet files and a dataset.toml, one block of buyers at a time; the folder appears only when complete."""
    needed = _BYTES_PER_PURCHASE * market.n_purchases + _BYTES_PER_USER * market.n_users
    with reporting_write_errors(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder.parent).free
    if needed > free:
        raise DataError(
            f"{market.n_purchases:,} purchases need about {needed / 2**30:,.1f} GiB, but {folder.parent} has "
            f"{free / 2**30:,.1f} GiB free; ask for fewer or choose another place."
        )
    with new_folder(folder, holds=("purchases", "buyers", "items", "dataset.toml")) as new:
        for kind in ("purchases", "buyers", "items"):
            (new / kind).mkdir()
        for index, block in enumerate(market.blocks()):
            name = f"{index:06d}.parquet"
            _purchases(block).write_parquet(new / "purchases" / name)
            _users(block).write_parquet(new / "buyers" / name)
            _items(block, market, with_stocked=index == 0).write_parquet(new / "items" / name)
            if progress:
                progress(index + 1, market.n_blocks)
        (new / "dataset.toml").write_text(to_toml(replace(SCHEMA, name=market.name)), encoding="utf-8")


def user_id(numbers: pl.Series) -> pl.Series:
    return ("b" + pl.DataFrame({"n": numbers})["n"].cast(pl.String).str.zfill(7)).alias("buyer")


def item_id(numbers: pl.Series) -> pl.Series:
    return ("t" + pl.DataFrame({"n": numbers})["n"].cast(pl.String).str.zfill(9)).alias("item")


def item_number(ids: pl.Series) -> pl.Series:
    """The market's own number of an item, from its id."""
    return ids.str.slice(1).cast(pl.Int64)


def _purchases(block: Block) -> pl.DataFrame:
    return pl.DataFrame(
        [
            user_id(pl.Series(block.first_buyer + block.buyer)),
            item_id(pl.Series(block.numbers[block.bought])),
            _moments("time", block.sold_second),
        ]
    ).sort("time", maintain_order=True)


def _users(block: Block) -> pl.DataFrame:
    numbers = pl.Series(np.arange(block.first_buyer, block.first_buyer + len(block.buyers)))
    return pl.DataFrame(
        [
            user_id(numbers),
            _named("age", world.AGES, block.buyers.age),
            _named("region", world.REGION_NAMES, block.buyers.region),
        ]
    )


def _items(block: Block, market: Market, with_stocked: bool) -> pl.DataFrame:
    """The block's listings, sold and unsold; the stocked ones, which all blocks share, only with the first block."""
    n_skipped = 0 if with_stocked else market.n_stocked
    listings: Listings = block.listings.rows(slice(n_skipped, None))
    genre = world.LEAF_GENRE[listings.leaf]
    frame = pl.DataFrame(
        [
            item_id(pl.Series(block.numbers[n_skipped:])),
            _named("genre", world.GENRE_NAMES, genre),
            _named("category", world.LEAF_NAMES, listings.leaf),
            _named("brand", world.BRAND_NAMES, listings.brand),
            _named("condition", world.CONDITIONS, listings.condition),
            _named("method", world.METHOD_NAMES, listings.method),
            _named("origin", world.REGION_NAMES, listings.origin),
            _named("duration", world.DURATIONS, listings.duration),
            _named("payer", world.PAYERS, listings.payer),
            pl.Series("price", listings.price),
            _moments("listed", block.listed[n_skipped:]),
        ]
    )
    title = pl.concat_str(
        pl.col("category"),
        pl.lit(" by "),
        "brand",
        pl.lit(", "),
        "origin",
        pl.lit(", "),
        "condition",
        pl.lit(", ships in "),
        "duration",
    )
    return frame.with_columns(title.alias("title"))


def _named(column: str, names: tuple[str, ...], positions: np.ndarray) -> pl.Series:
    return pl.Series(names, dtype=pl.String).gather(pl.Series(positions).cast(pl.UInt32)).alias(column)


def _moments(column: str, seconds: np.ndarray) -> pl.Series:
    """Times from seconds since the market's first day."""
    return pl.Series(column, (FIRST_DAY * 86_400 + seconds) * 1_000_000).cast(pl.Datetime("us"))
