"""The built-in market, small, with fields of each kind and one title that is HTML."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import polars as pl

from gmlfm import Dataset
from gmlfm.data.sources.bazaar import Market, write_bazaar

HTML_TITLE = '<img src=x onerror="window.wasRun=1"><b>Bold</b> & "quoted" <script>window.wasRun=1</script>'


def small_market(folder: Path) -> tuple[Dataset, str]:
    """The data, and the buyer with the fewest purchases, whose last one has that title."""
    write_bazaar(Market(n_users=200, n_purchases=2_400), folder)
    purchases, buyers, items = (pl.read_parquet(folder / name / "*.parquet") for name in ("purchases", "buyers", "items"))
    rng = np.random.default_rng(0)
    channels = rng.choice(["app", "web"], len(purchases))
    liked = [
        [str(word) for word in rng.choice(["music", "sport", "travel"], rng.integers(0, 3), replace=False)]
        for _ in buyers["buyer"]
    ]
    purchases = purchases.with_columns(pl.Series("channel", channels))
    buyers = buyers.with_columns(pl.Series("budget", rng.integers(1, 50, len(buyers)) * 1000.0), pl.Series("likes", liked))
    last = purchases.sort("time").group_by("buyer", maintain_order=True).agg(pl.col("item").last(), pl.len().alias("n"))
    buyer, item = last.sort(["n", "buyer"]).row(0)[:2]
    titles = pl.when(pl.col("item") == item).then(pl.lit(HTML_TITLE)).otherwise(pl.col("title")).alias("title")
    schema = tomllib.loads((folder / "dataset.toml").read_text(encoding="utf-8"))
    for part in ("interactions", "users", "items"):
        del schema[part]["path"]
    schema["interactions"]["context"] = {"channel": "category"}
    schema["users"]["fields"] |= {"budget": "number", "likes": {"kind": "set"}}
    return Dataset.from_tables(purchases, buyers, items.with_columns(titles), schema=schema), str(buyer)
