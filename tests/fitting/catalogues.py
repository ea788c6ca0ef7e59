"""Small datasets of every shape of a catalogue, written as files that both roads read: into memory, and prepared.

Users and items have a taste; most choices are of the user's own. Ids ascend with their numbers, so that equal counts are
ordered alike by number and by text.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

N_TASTES = 5
SHAPES = (
    "all-sold",
    "unsold",
    "sold-once",
    "sold-once-listed",
    "sold-once-with-exempt",
    "repeats",
    "context",
    "rated",
    "no-time",
    "events",
)

TOML = """name = "{name}"
[interactions]
path = "rows.csv"
user = "u"
item = "i"
{interactions}
[users]
path = "users.csv"
id = "u"
fields = {{ age = "number" }}
[items]
path = "items.csv"
id = "i"
fields = {{ kind = "category", tags = {{ kind = "set", separator = "|" }} }}
{items}
[encoding]
min_count = {{ tags = 2 }}
"""


def write_catalogue(folder: Path, shape: str, n_users: int = 60, rows_per_user: int = 12) -> Path:
    rng = np.random.default_rng([7, SHAPES.index(shape)])
    sells_once, n = shape.startswith("sold-once"), n_users * rows_per_user
    n_sold = n if sells_once else 150
    n_items = n_sold + {"unsold": 3_000, "all-sold": 0}.get(shape, 100)
    item_taste, user_taste = np.arange(n_items) % N_TASTES, np.arange(n_users) % N_TASTES
    users = np.repeat(np.arange(n_users), rows_per_user)
    tastes = np.where(rng.random(n) < 0.8, user_taste[users], rng.integers(0, N_TASTES, n))
    listed = rng.integers(0, 1_000, n_items)
    if sells_once:
        items, times = _sales(rng, tastes, item_taste[:n_sold]), np.empty(0, np.int64)
        times = listed[items] + rng.integers(0, 250, n)
    else:
        items = tastes + N_TASTES * rng.integers(0, n_sold // N_TASTES, n)
        times = rng.integers(0, 1_000, n)
    columns: dict[str, Any] = {"u": _ids("u", users), "i": _ids("i", items)}
    declared, of_items = [], []
    if shape != "no-time":
        columns["t"] = times
        declared.append('time = "t"')
    if shape == "sold-once-with-exempt":  # a tenth of the rows are of five items
        is_exempt = rng.random(n) < 0.1
        exempt = _ids("i", n_sold + rng.integers(0, 5, n))
        columns["i"] = [exempt[row] if is_exempt[row] else item for row, item in enumerate(columns["i"])]
        of_items.append("sells_once = true")
    if shape in ("sold-once-listed", "sold-once-with-exempt"):
        of_items.append('listed = "from"')
    if shape == "repeats":
        declared.append('repeats = "keep"')
    if shape == "events":  # of the kinds that are history alone, of one that is a target alone; in times that tie
        columns["t"] = times // 25
        columns["kind"] = rng.choice(["buy", "gift", "click"], n, p=[0.6, 0.1, 0.3])
        declared += ['event = "kind"', 'targets = ["buy", "gift"]', 'history_events = ["buy", "click"]', 'ties = "shuffle"']
    if shape == "context":
        columns["season"] = [["spring", "autumn", "winter", ""][taste % 4] for taste in tastes]
        columns["hour"] = rng.integers(0, 24, n)
        columns["mood"] = ["|".join(f"m{mood}" for mood in rng.choice(30, rng.integers(0, 4), replace=False)) for _ in range(n)]
        declared.append('context = { season = "category", hour = "number", mood = { kind = "set", separator = "|" } }')
    if shape == "rated":
        columns["stars"] = np.where(tastes == user_taste[users], 5, rng.integers(1, 5, n))
        columns["n"] = rng.integers(1, 4, n)
        declared += ['label = "stars"', 'positive = "stars >= 3"', 'weight = "n"']
    folder.mkdir(parents=True, exist_ok=True)
    order = rng.permutation(n)
    pl.DataFrame(columns)[order].write_csv(folder / "rows.csv")
    pl.DataFrame({"u": _ids("u", np.arange(n_users)), "age": 20 + user_taste * 3}).write_csv(folder / "users.csv")
    table = {
        "i": _ids("i", np.arange(n_items)),
        "kind": [f"k{taste}" for taste in item_taste],
        "tags": [f"t{item % 9}|t{item % 4}" for item in range(n_items)],
        "from": [None if item % 50 == 49 else int(time) for item, time in enumerate(listed)],
    }
    pl.DataFrame(table).write_csv(folder / "items.csv")
    text = TOML.format(name=shape, interactions="\n".join(declared), items="\n".join(of_items))
    (folder / "dataset.toml").write_text(text)
    return folder


def _ids(letter: str, numbers: np.ndarray) -> list[str]:
    return [f"{letter}{number:05d}" for number in numbers]


def _sales(rng: np.random.Generator, tastes: np.ndarray, item_taste: np.ndarray) -> np.ndarray:
    """Every item to one row: of the row's taste as far as they last."""
    items = np.full(len(tastes), -1)
    left = rng.permutation(len(item_taste))
    for taste in range(N_TASTES):
        rows, fitting = np.flatnonzero(tastes == taste), left[item_taste[left] == taste]
        n = min(len(rows), len(fitting))
        items[rng.permutation(rows)[:n]] = fitting[:n]
    rest = np.setdiff1d(left, items)
    items[items < 0] = rest[: int((items < 0).sum())]
    return items
