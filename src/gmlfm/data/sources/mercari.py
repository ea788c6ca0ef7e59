"""The paper's Mercari tables: categories with a parent, items, purchases. One root category, buyers with five or more."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl

from gmlfm.data.columns import Origin, as_ids
from gmlfm.data.schema import ReadOptions
from gmlfm.data.sources.tables import read_table
from gmlfm.errors import DataError, did_you_mean
from gmlfm.reading import is_folder, is_regular
from gmlfm.storage import new_folder

TABLES = {
    "categories": ("id", "name", "parent"),
    "items": ("id", "category", "condition", "brand", "size", "price", "seller", "method", "origin", "duration", "payer"),
    "purchases": ("time", "buyer", "item", "category"),
}
_SUFFIXES = (".parquet", ".csv", ".csv.gz", ".tsv", ".tsv.gz", ".jsonl", ".jsonl.gz")

_TOML = """# The paper's fields; brand, size, price, seller and payer are there too: take what you want into fields.
name = "{name}"

[interactions]
path = "purchases.parquet"
user = "buyer"
item = "item"
time = "time"

[items]
path = "items.parquet"
id = "id"
fields = {{ category = "category", condition = "category", method = "category", origin = "category", duration = "category" }}
# fields = {{ ..., brand = "category", size = "category", price = "number", seller = "category", payer = "category" }}

[encoding]
min_count = {{ item = 2 }}  # most items are sold once: an embedding for each would be waste
"""


def convert_mercari(source: Path, root: str, folder: Path, least: int = 5) -> None:
    """A folder with categories, items and purchases (csv, tsv, jsonl or parquet) -> one root category's dataset."""
    tables = {name: _read(source, name) for name in TABLES}
    categories = tables["categories"]
    roots = categories.filter(pl.col("parent").is_null())
    chosen = roots.filter(pl.col("name").str.to_lowercase() == root.lower())
    if chosen.height == 0:
        raise DataError(f"no root category is called '{root}'{did_you_mean(root, roots['name'].drop_nulls().to_list())}")
    below = _descendants(categories, chosen["id"].to_list())
    purchases = tables["purchases"]
    for column in ("buyer", "item"):
        if purchases[column].null_count():
            row = int(purchases[column].is_null().arg_max() or 0)
            raise DataError(f"the purchases' row {row + 1} has no {column}.")
    items = tables["items"].filter(pl.col("category").is_in(below))
    purchases = purchases.filter(pl.col("category").is_in(below) | pl.col("item").is_in(items["id"].implode()))
    purchases = purchases.filter(pl.len().over("buyer") >= least)
    if purchases.height == 0:
        raise DataError(f"no buyer has {least} purchases or more below '{root}', so nothing is left.")
    sold = items.filter(pl.col("id").is_in(purchases["item"].implode()))
    with new_folder(folder, holds=("purchases.parquet", "items.parquet", "dataset.toml")) as new:
        purchases.select("time", "buyer", "item").write_parquet(new / "purchases.parquet")
        sold.write_parquet(new / "items.parquet")
        (new / "dataset.toml").write_text(_TOML.format(name=f"mercari-{slug(root)}"), encoding="utf-8")


def slug(category: str) -> str:
    """A category's name in the form that folder names take."""
    return re.sub(r"[^\w-]+", "-", category.lower()).strip("-") or "category"


def _descendants(categories: pl.DataFrame, roots: list[str]) -> list[str]:
    """The roots and all categories below them. A tree has no circle, so a category met before ends its branch."""
    descendants = set(roots)
    frontier = list(roots)
    while frontier:
        children = categories.filter(pl.col("parent").is_in(frontier))["id"].to_list()
        frontier = [category for category in children if category not in descendants]
        descendants.update(frontier)
    return sorted(descendants)


def _read(folder: Path, name: str) -> pl.DataFrame:
    if not is_folder(folder):
        raise DataError(f"{folder} is not a folder; --from names the folder with categories, items and purchases.")
    path = next((folder / f"{name}{suffix}" for suffix in _SUFFIXES if is_regular(folder / f"{name}{suffix}")), None)
    if path is None:
        raise DataError(f"{folder} has no file '{name}' ({', '.join(_SUFFIXES)}); expected {', '.join(TABLES)}.")
    frame = read_table(str(path), Path(), ReadOptions()).frame
    for column in TABLES[name]:
        if column not in frame.columns:
            raise DataError(f"{path} has no column '{column}'{did_you_mean(column, frame.columns)}")
    # Ids must meet across the three files, whatever type each file gave them.
    ids = [column for column in ("id", "parent", "category", "item", "buyer") if column in TABLES[name]]
    return frame.select(TABLES[name]).with_columns(
        [as_ids(frame[column], Origin(str(path)))[0].alias(column) for column in ids]
    )
