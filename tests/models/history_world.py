"""A small market with times, in which users and items have attributes and rows a context; some pairs come twice."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from gmlfm import Dataset

N_USERS, N_ITEMS, N_ROWS = 24, 18, 9  # rows of each user
QUICK: dict[str, Any] = {
    "k": 4,
    "epochs": 1,
    "threads": 1,
    "history": "last,recent,past",
    "history_length": 5,
    "half_life": 2.0,
}


def history_data(
    seed: int = 0, *, context: bool = True, users: bool = True, items: dict[str, Any] | None = None, **interactions: Any
) -> Dataset:
    """items: more of the schema's [items]; interactions: more of [interactions]. Times differ within a user, but for a few."""
    rng = np.random.default_rng(seed)
    owners = np.repeat(np.arange(N_USERS), N_ROWS)
    steps = np.concatenate([rng.permutation(N_ROWS) for _ in range(N_USERS)])
    chosen = np.concatenate([(3 * user + rng.permutation(N_ITEMS)[:N_ROWS]) % N_ITEMS for user in range(N_USERS)])
    rows = {
        "user": [f"u{user:02d}" for user in owners],
        "item": [f"i{item:02d}" for item in chosen],
        "time": 100 + 10 * np.where(steps == 1, 0, steps) + owners % 10,
        "season": [["wet", "dry", ""][step % 3] for step in steps],
        "stars": rng.integers(1, 6, len(owners)),
        "n": rng.integers(1, 4, len(owners)),
        "kind": [["click", "buy", "buy"][step % 3] for step in steps],
    }
    spec = {"user": "user", "item": "item", "time": "time", **interactions}
    if context:
        spec["context"] = {"season": "category"}
    schema: dict[str, Any] = {"interactions": spec}
    tables: dict[str, Any] = {"interactions": pl.DataFrame(rows)}
    if users:
        tables["users"] = pl.DataFrame(
            {"user": [f"u{user:02d}" for user in range(N_USERS)], "age": 20 + np.arange(N_USERS) % 7}
        )
        schema["users"] = {"id": "user", "fields": {"age": "number"}}
    numbers = np.arange(N_ITEMS)
    tables["items"] = pl.DataFrame(
        {
            "item": [f"i{item:02d}" for item in numbers],
            "kind": [f"k{item % 3}" for item in numbers],
            "tags": ["|".join(f"t{tag}" for tag in {item % 4, item % 5}) for item in numbers],
            "listed": 90 + 3 * numbers,
        }
    )
    fields = {"kind": "category", "tags": {"kind": "set", "separator": "|"}}
    schema["items"] = {"id": "item", "fields": fields, **(items or {})}
    return Dataset.from_tables(**tables, schema=schema)
