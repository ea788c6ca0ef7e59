"""Made-up markets where things sell once, without any signal: who buys what is drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from gmlfm import Dataset


def sold_once(
    n_users: int = 60, n_items: int = 1500, n_unsold: int = 300, n_exempt: int = 0, *, listed: bool = False, seed: int = 0
) -> Dataset:
    """Each of n_items is sold once, at a time of its own; n_exempt more are sold three times; n_unsold are only listed.

    An item is listed up to 400 moments before its sale.
    """
    rng = np.random.default_rng(seed)
    n_rows = n_items + 3 * n_exempt
    items = rng.permutation(np.concatenate([np.arange(n_items), np.repeat(np.arange(n_items, n_items + n_exempt), 3)]))
    users, times = rng.integers(n_users, size=n_rows), rng.permutation(n_rows) + 1000
    table = {"user": [f"u{user}" for user in users], "item": [f"i{item}" for item in items], "time": times}
    n_all = n_items + n_exempt + n_unsold
    first_sale = np.full(n_all, -1)
    first_sale[items[::-1]] = times[::-1]
    for item in range(n_items, n_items + n_exempt):
        first_sale[item] = times[items == item].min()
    first_sale[n_items + n_exempt :] = rng.integers(1000, 1000 + n_rows, size=n_unsold)
    listings = first_sale - rng.integers(0, 400, size=n_all)
    schema: dict[str, Any] = {
        "interactions": {"user": "user", "item": "item", "time": "time"},
        "items": {"id": "item", "sells_once": True},
    }
    side = {"item": [f"i{item}" for item in range(n_all)]}
    if listed:
        side["listed"] = listings.tolist()  # type: ignore[assignment]
        schema["items"]["listed"] = "listed"
    return Dataset.from_tables(pl.DataFrame(table), items=pl.DataFrame(side), schema=schema)
