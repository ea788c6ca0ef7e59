"""Tables as callers have them, for Hypothesis; and small fixed ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from hypothesis import strategies as st

from gmlfm import Dataset

AWKWARD = [
    "",
    " ",
    "0",
    "007",
    "7",
    "7.0",
    "1e3",
    "NULL",
    "nan",
    "NaN",
    "None",
    "é",
    "日本",
    "a|b",
    '"',
    "'",
    "\n",
    "\t",
    "🦆",
    "-1",
]
texts = st.one_of(st.sampled_from(AWKWARD), st.text(max_size=6))
ids = st.one_of(texts, st.integers(-3, 30).map(str))
numbers = st.one_of(st.floats(width=64, allow_infinity=False), st.floats(-1e3, 1e3), st.just(0.0))


@st.composite
def datasets(draw: st.DrawFn, min_rows: int = 1, max_rows: int = 30, few: bool = False) -> Dataset:
    """Any dataset with all kinds of fields; users and items may lack a table row, cells may be missing."""
    pool = st.integers(0, 5).map(str) if few else ids
    rows = draw(st.lists(st.tuples(pool, pool, st.integers(0, 9)), min_size=min_rows, max_size=max_rows))
    interactions = pl.DataFrame(rows, schema={"u": pl.String, "i": pl.String, "t": pl.Int64}, orient="row")
    tags = draw(st.lists(st.none() | st.lists(texts, max_size=5), min_size=len(rows), max_size=len(rows)))
    device = draw(st.lists(st.none() | texts, min_size=len(rows), max_size=len(rows)))
    interactions = interactions.with_columns(
        pl.Series("device", device, dtype=pl.String), pl.Series("mood", tags, dtype=pl.List(pl.String))
    )
    schema: dict[str, Any] = {
        "interactions": {"user": "u", "item": "i", "time": "t", "context": {"device": "category", "mood": {"kind": "set"}}}
    }
    tables = {}
    for side, weighting in (("users", "sqrt"), ("items", "none")):
        if draw(st.booleans()):
            tables[side] = draw(side_tables())
            schema[side] = {
                "id": "id",
                "fields": {"a": "category", "n": "number", "s": {"kind": "set", "weighting": weighting}},
            }
    return Dataset.from_tables(interactions, **tables, schema=schema)


@st.composite
def side_tables(draw: st.DrawFn) -> pl.DataFrame:
    listed = draw(st.lists(ids, min_size=1, max_size=10, unique=True))

    def cells(values: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(st.none() | values, min_size=len(listed), max_size=len(listed)))

    return pl.DataFrame(
        {
            "id": pl.Series(listed, dtype=pl.String),
            "a": pl.Series(cells(texts), dtype=pl.String),
            "n": pl.Series(cells(numbers), dtype=pl.Float64),
            "s": pl.Series(cells(st.lists(texts, max_size=5)), dtype=pl.List(pl.String)),
        }
    )


def plain(users: list[int], items: list[int], times: list[int] | None = None, repeats: str = "keep", **columns: Any) -> Dataset:
    """Interactions alone, ids from numbers."""
    table: dict[str, Any] = {"user": [f"u{user}" for user in users], "item": [f"i{item}" for item in items], **columns}
    schema: dict[str, Any] = {"user": "user", "item": "item", "repeats": repeats}
    if times is not None:
        table["time"], schema["time"] = times, "time"
    if "label" in columns:
        schema["label"] = "label"
    return Dataset.from_tables(pl.DataFrame(table), schema={"interactions": schema})


def random_plain(n_users: int, n_items: int, n_rows: int, seed: int = 0, repeats: str = "keep") -> Dataset:
    rng = np.random.default_rng(seed)
    return plain(
        rng.integers(n_users, size=n_rows).tolist(),
        rng.integers(n_items, size=n_rows).tolist(),
        rng.integers(1000, size=n_rows).tolist(),
        repeats,
    )


SCHEMA: dict[str, Any] = {
    "interactions": {"user": "u", "item": "i", "time": "t", "label": "stars", "weight": "n", "context": {"on": "category"}},
    "users": {"id": "u", "fields": {"city": "category", "age": "number"}},
    "items": {"id": "i", "fields": {"tags": {"kind": "set", "separator": "|"}}, "title": "name"},
}
INTERACTIONS = {
    "u": [1, 2, 1, 3],
    "i": ["a", "b", "a", "c"],
    "t": [5, 6, 7, 8],
    "stars": [1.0, None, 3.0, 4.0],
    "n": [1, 2, 3, 4],
    "on": ["web", "app", "web", "app"],
}
USERS = {"u": [1, 2], "city": ["Ōsaka", None], "age": [30.0, float("nan")]}
ITEMS = {"i": ["b", "a", "z"], "tags": ["x|y", "", "y| x |y"], "name": ["B", "A", "Z"]}


def build(**changes: Any) -> Dataset:
    """The dataset of the four tables above, some of them changed."""
    tables = {
        "interactions": pl.DataFrame(INTERACTIONS),
        "users": pl.DataFrame(USERS),
        "items": pl.DataFrame(ITEMS),
        "schema": SCHEMA,
    }
    return Dataset.from_tables(**{**tables, **changes})
