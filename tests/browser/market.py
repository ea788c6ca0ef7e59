"""Markets for the browser: the built-in one, small, with fields of each kind and two awkward titles; and one without fields."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from gmlfm import Dataset
from gmlfm.data.sources.bazaar import Market, write_bazaar

HTML_TITLE = '<img src=x onerror="window.wasRun=1"><b>Bold</b> & "quoted" <script>window.wasRun=1</script>'
LONG_TITLE = "Donaudampfschifffahrt" * 15


@dataclass(frozen=True)
class SmallMarket:
    """buyer: one with few purchases; the last has a title that is HTML, the first one of a single word of 315 letters."""

    data: Dataset
    buyer: str
    html_item: str
    long_item: str


def small_market(folder: Path) -> SmallMarket:
    write_bazaar(Market(n_users=200, n_purchases=2_400), folder)
    purchases, buyers, items = (pl.read_parquet(folder / name / "*.parquet") for name in ("purchases", "buyers", "items"))
    rng = np.random.default_rng(0)
    channels = rng.choice(["app", "web"], len(purchases))
    campaigns = [f"campaign {number % 230}" for number in range(len(purchases))]  # more than a list shows
    purchases = purchases.with_columns(pl.Series("channel", channels), pl.Series("campaign", campaigns))
    liked = _sets(rng, ["music", "sport", "travel"], len(buyers))
    rare = [[f"hobby {number % 25}"] if number % 3 == 0 else [] for number in range(len(buyers))]
    buyers = buyers.with_columns(
        pl.Series("budget", rng.integers(1, 50, len(buyers)) * 1000.0),
        pl.Series("likes", [some + more for some, more in zip(liked, rare, strict=True)]),
    )
    tags = [None if number % 7 == 0 else some for number, some in enumerate(_sets(rng, ["family", "late"], len(items)))]
    few = (
        purchases.sort("time")
        .group_by("buyer", maintain_order=True)
        .agg(pl.col("item").first().alias("first"), pl.col("item").last().alias("last"), pl.len().alias("n"))
        .filter(pl.col("first") != pl.col("last"))
        .sort(["n", "buyer"])
    )
    buyer, long_item, html_item = few.row(0)[:3]
    titles = pl.col("item").replace_strict({long_item: LONG_TITLE, html_item: HTML_TITLE}, default=pl.col("title"))
    items = items.with_columns(titles.alias("title"), pl.Series("tags", tags, pl.List(pl.String)))
    schema = tomllib.loads((folder / "dataset.toml").read_text(encoding="utf-8"))
    for part in ("interactions", "users", "items"):
        del schema[part]["path"]
    schema["interactions"]["context"] = {"channel": "category", "campaign": "category"}
    schema["users"]["fields"] |= {"budget": "number", "likes": {"kind": "set"}}
    schema["items"]["fields"] |= {"tags": {"kind": "set"}}
    data = Dataset.from_tables(purchases, buyers, items, schema=schema)
    return SmallMarket(data, str(buyer), str(html_item), str(long_item))


def _sets(rng: np.random.Generator, words: list[str], n: int) -> list[list[str]]:
    """None, one or some of the words."""
    return [[str(word) for word in rng.choice(words, rng.integers(0, len(words)), replace=False)] for _ in range(n)]


def bare_market() -> Dataset:
    """Who took what, and nothing else."""
    rows = [(f"user {user}", f"item {(user + step * step) % 40}") for user in range(40) for step in range(6)]
    return Dataset.from_tables(pl.DataFrame(rows, schema=["user", "item"], orient="row").unique(maintain_order=True))
