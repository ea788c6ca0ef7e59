"""A dataset whose answer is known: red users choose red items, blue users blue ones."""

from __future__ import annotations

import numpy as np
import polars as pl

from gmlfm import Dataset

N_USERS, N_ITEMS = 40, 40
COLOURS = ["red", "blue"]


def checkerboard(seed: int = 0, rows_per_user: int = 15) -> Dataset:
    rng = np.random.default_rng(seed)
    rows = []
    for user in range(N_USERS):
        same_colour = [item for item in range(N_ITEMS) if item % 2 == user % 2]
        for time, item in enumerate(rng.choice(same_colour, rows_per_user, replace=False)):
            rows.append((f"u{user}", f"i{item}", time, 5.0))
        other_colour = [item for item in range(N_ITEMS) if item % 2 != user % 2]
        for time, item in enumerate(rng.choice(other_colour, 4, replace=False)):
            rows.append((f"u{user}", f"i{item}", time, 1.0))
    interactions = pl.DataFrame(rows, schema=["user", "item", "time", "stars"], orient="row")
    users = pl.DataFrame({"user": [f"u{n}" for n in range(N_USERS)], "team": [COLOURS[n % 2] for n in range(N_USERS)]})
    items = pl.DataFrame(
        {
            "item": [f"i{n}" for n in range(N_ITEMS + 2)],
            "colour": [COLOURS[n % 2] for n in range(N_ITEMS + 2)],
            "price": [float(n % 7) for n in range(N_ITEMS + 2)],
            "tags": [["x", COLOURS[n % 2]] for n in range(N_ITEMS + 2)],
        }
    )
    schema = {
        "name": "checkerboard",
        "interactions": {"user": "user", "item": "item", "time": "time", "label": "stars", "positive": "stars >= 3"},
        "users": {"id": "user", "fields": {"team": "category"}},
        "items": {"id": "item", "fields": {"colour": "category", "price": "number", "tags": {"kind": "set"}}},
    }
    return Dataset.from_tables(interactions, users, items, schema=schema)
