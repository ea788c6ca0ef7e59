"""Data without any signal: who chooses what is drawn uniformly, whatever attributes, times and listings say. And data with one.

Ids carry no order; ordinary data have about ten rows an item, so that every item has a training row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from gmlfm import Dataset

N_USERS, N_ITEMS, ROWS_PER_USER, N_GROUPS = 320, 320, 11, 4
SHAPES = (
    "ordinary",  # ids alone: no times, no attributes
    "times",
    "repeats",
    "repeats-merged",
    "attributes",
    "sold-once",
    "sold-once-no-times",
    "sold-once-listed",
    "sold-once-exempt",
)
RATED = ("rated", "rated-attributes")
MERGED = "repeats-merged"
_NUMBERED = (*(shape for shape in SHAPES if shape != MERGED), *RATED, MERGED)  # what is added must move no other world


def make_tables(shape: str, seed: int = 0) -> dict[str, Any]:
    """The tables and the schema of a shape, as the arguments of Dataset.from_tables."""
    rng = np.random.default_rng([seed, 14, _NUMBERED.index(shape)])
    sells_once, has_attributes = shape.startswith("sold-once"), shape in ("attributes", "rated-attributes", "sold-once-listed")
    n_users, n_each = (N_USERS // 2, 2 * ROWS_PER_USER) if shape in RATED else (N_USERS, ROWS_PER_USER)
    n_items = n_users * n_each if sells_once else N_ITEMS
    users = np.repeat(np.arange(n_users), n_each)
    if sells_once:
        items = rng.permutation(n_items)
    elif shape == "repeats":
        items = rng.integers(N_ITEMS, size=len(users))
    elif shape == MERGED:  # of 12 items of each user, so that most rows are repeats
        items = np.concatenate([rng.permutation(N_ITEMS)[:12][rng.integers(12, size=n_each)] for _ in range(n_users)])
    else:
        items = np.concatenate([rng.permutation(N_ITEMS)[:n_each] for _ in range(n_users)])
    order = rng.permutation(len(users))
    users, items, times = users[order], items[order], rng.permutation(len(users)) + 10_000
    n_catalogue = n_items
    listed = np.empty(n_items, np.int64)
    listed[items] = times - rng.integers(0, 800, len(items))
    if shape == "sold-once-exempt":  # a tenth of the rows are of 120 items that sell more than once
        is_exempt = rng.random(len(items)) < 0.1
        items[is_exempt] = n_items + rng.integers(120, size=int(is_exempt.sum()))
        n_catalogue += 120
    if shape == "sold-once-listed":
        n_catalogue += 600  # never sold
        listed = np.concatenate([listed, rng.integers(9_500, 10_000 + len(users), 600)])
    interactions: dict[str, Any] = {"user": _ids("u", users), "item": _ids("i", items)}
    schema: dict[str, Any] = {
        "interactions": {"user": "user", "item": "item"},
        "users": {"id": "user"},
        "items": {"id": "item"},
    }
    if shape not in ("ordinary", "sold-once-no-times"):
        interactions["time"] = times
        schema["interactions"]["time"] = "time"
    if shape == "repeats":
        schema["interactions"]["repeats"] = "keep"
    if shape in RATED:
        interactions["stars"] = rng.integers(1, 6, len(users))
        schema["interactions"] |= {"label": "stars", "positive": "stars >= 1"}
    of_users: dict[str, Any] = {"user": _ids("u", rng.permutation(n_users))}
    of_items: dict[str, Any] = {"item": _ids("i", np.arange(n_catalogue))}
    if shape == "sold-once-exempt":
        schema["items"]["sells_once"] = True
    if shape == "sold-once-listed":
        of_items["listed"] = listed
        schema["items"]["listed"] = "listed"
    if has_attributes:
        of_users["city"], of_users["age"] = rng.integers(12, size=n_users).astype(str), rng.integers(18, 80, n_users)
        of_items["kind"] = rng.integers(15, size=n_catalogue).astype(str)
        of_items["tags"] = ["|".join(f"t{tag}" for tag in rng.choice(20, 2, replace=False)) for _ in range(n_catalogue)]
        schema["users"]["fields"] = {"city": "category", "age": "number"}
        schema["items"]["fields"] = {"kind": "category", "tags": {"kind": "set", "separator": "|"}}
    rows = pl.DataFrame(interactions)
    if shape not in ("repeats", MERGED):
        rows = rows.unique(["user", "item"], keep="first", maintain_order=True)
    return {"interactions": rows, "users": pl.DataFrame(of_users), "items": pl.DataFrame(of_items), "schema": schema}


def random_data(shape: str, seed: int = 0) -> Dataset:
    return Dataset.from_tables(**make_tables(shape, seed))


def planted_data(signal: str, seed: int = 0) -> Dataset:
    """Users of a group choose items of their group: ids, whose groups nobody tells; attributes, which tell them, too.
    popularity: everybody chooses the same tenth of the items in half of the rows."""
    rng = np.random.default_rng([seed, 41])
    user_group, item_group = rng.integers(N_GROUPS, size=N_USERS), rng.integers(N_GROUPS, size=N_ITEMS)
    users, items = [], []
    for user in range(N_USERS):
        weights = np.ones(N_ITEMS)
        if signal == "popularity":
            weights[: N_ITEMS // 10] = 9.0
        else:
            weights[item_group != user_group[user]] = 0.0
        users += [user] * (2 * ROWS_PER_USER)
        items += rng.choice(N_ITEMS, 2 * ROWS_PER_USER, replace=False, p=weights / weights.sum()).tolist()
    order = rng.permutation(len(users))
    interactions = pl.DataFrame({"user": _ids("u", np.array(users)[order]), "item": _ids("i", np.array(items)[order])})
    of_users: dict[str, Any] = {"user": _ids("u", np.arange(N_USERS))}
    of_items: dict[str, Any] = {"item": _ids("i", np.arange(N_ITEMS))}
    schema: dict[str, Any] = {
        "interactions": {"user": "user", "item": "item"},
        "users": {"id": "user"},
        "items": {"id": "item"},
    }
    if signal == "attributes":
        of_users["city"], of_items["kind"] = user_group.astype(str), item_group.astype(str)
        schema["users"]["fields"], schema["items"]["fields"] = {"city": "category"}, {"kind": "category"}
    return Dataset.from_tables(interactions, pl.DataFrame(of_users), pl.DataFrame(of_items), schema=schema)


def _ids(letter: str, numbers: np.ndarray) -> list[str]:
    return [f"{letter}{number * 7919 % 100_003}" for number in numbers.tolist()]
