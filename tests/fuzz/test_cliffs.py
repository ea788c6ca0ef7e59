"""Where data and settings end: the smallest, the largest, all the same. An answer, or one sentence, and never a wait without end."""

from __future__ import annotations

import signal
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from gmlfm import Dataset, Recommender, Schema
from gmlfm.data.prepared import PreparedData
from gmlfm.data.sources.preparing import prepare
from tests.contracts.checkerboard import checkerboard
from tests.fuzz.cases import check

QUICK: dict[str, Any] = {"k": 4, "epochs": 1, "threads": 1}
_SECONDS = 120


def rows(n_users: int = 6, n_items: int = 8, n_rows: int = 60, **more: Any) -> Dataset:
    """more: columns of the interactions, by their kind: time, label, weight, or a context field."""
    numbers = np.arange(n_rows)
    columns: dict[str, Any] = {
        "user": [f"u{n % n_users}" for n in numbers],
        "item": [f"i{(n * 7 + n // n_users) % n_items}" for n in numbers],
    }
    schema: dict[str, Any] = {"user": "user", "item": "item"}
    for name, values in more.items():
        columns[name] = values
        if name in ("time", "label", "weight"):
            schema[name] = name
        else:
            schema["context"] = {name: "category"}
    return Dataset.from_tables(pl.DataFrame(columns), schema={"interactions": schema})


def with_items(values: Any, kind: str, n_items: int = 8) -> Dataset:
    table = pl.DataFrame({"id": [f"i{n}" for n in range(n_items)], "field": values})
    interactions = pl.DataFrame(
        {"u": [f"u{n % 6}" for n in range(60)], "i": [f"i{(n * 3 + n // 6) % n_items}" for n in range(60)]}
    )
    schema = {"interactions": {"user": "u", "item": "i"}, "items": {"id": "id", "fields": {"field": {"kind": kind}}}}
    return Dataset.from_tables(interactions, items=table, schema=schema)


def fitted(data: Dataset, model: str = "fm", task: str = "topn", **settings: Any) -> None:
    recommender = Recommender(model, task, **{**QUICK, **settings}).fit(data)
    recommender.recommend([data.users.ids[0], "nobody"], 3)
    if len(recommender.fitted.split.test):
        recommender.evaluate()


def prepared(folder: Path, **options: Any) -> None:
    table = pl.DataFrame(
        {"user": [f"u{n % 20}" for n in range(400)], "item": [f"i{n % 30}" for n in range(400)], "time": range(400)}
    )
    folder.mkdir(parents=True, exist_ok=True)
    table.write_csv(folder / "rows.csv")
    (folder / "dataset.toml").write_text('[interactions]\npath = "rows.csv"\nuser = "user"\nitem = "item"\ntime = "time"\n')
    result = prepare(Schema.from_toml(folder / "dataset.toml"), folder, folder / "prepared", **options)
    assert isinstance(result, PreparedData)
    Recommender("fm", **QUICK).fit(result).recommend(["u1"], 3)


BOARD = checkerboard()
HUGE = 10**18
CLIFFS: dict[str, Callable[[Path], Any]] = {
    "one row": lambda _: fitted(rows(1, 1, 1)),
    "one user": lambda _: fitted(rows(1, 8, 40)),
    "one item": lambda _: fitted(rows(6, 1, 40)),
    "two users, two items": lambda _: fitted(rows(2, 2, 4)),
    "no rows": lambda _: fitted(rows(1, 1, 0)),
    "a user with all rows": lambda _: fitted(rows(1, 5_000, 20_000)),
    "every user once": lambda _: fitted(rows(500, 10, 500)),
    "all times equal": lambda _: fitted(rows(time=[5] * 60)),
    "times at the end of time": lambda _: fitted(rows(time=[2**63 - 1 - n for n in range(60)])),
    "times before the beginning": lambda _: fitted(rows(time=[-(2**63) + n for n in range(60)])),
    "no time in some rows": lambda _: fitted(rows(time=[None if n % 3 else n for n in range(60)])),
    "labels all equal": lambda _: fitted(rows(label=[3.0] * 60), task="rating"),
    "labels of 1e300": lambda _: fitted(rows(label=[1e300 * (n % 2) for n in range(60)]), task="rating"),
    "weights all zero": lambda _: fitted(rows(weight=[0.0] * 60)),
    "weights of 1e38": lambda _: fitted(rows(weight=[1e38] * 60)),
    "a context value a row": lambda _: fitted(rows(channel=[f"c{n}" for n in range(60)])),
    "ids of 10,000 characters": lambda _: fitted(
        Dataset.from_tables(
            pl.DataFrame(
                {"user": [f"{'u' * 10_000}{n % 5}" for n in range(40)], "item": [f"{'i' * 10_000}{n % 7}" for n in range(40)]}
            ),
            schema={"interactions": {"user": "user", "item": "item"}},
        )
    ),
    "a set of 5,000 members": lambda _: fitted(with_items([[f"t{n}" for n in range(5_000)]] * 8, "set")),
    "empty sets": lambda _: fitted(with_items([[]] * 8, "set")),
    "a field that is missing everywhere": lambda _: fitted(with_items([None] * 8, "category")),
    "a number that is the same everywhere": lambda _: fitted(with_items([1.0] * 8, "number")),
    "numbers of 1e300": lambda _: fitted(with_items([1e300 * n for n in range(8)], "number")),
    "numbers of 1e-300": lambda _: fitted(with_items([1e-300 * n for n in range(8)], "number")),
    "a category a megabyte long": lambda _: fitted(with_items(["x" * 10**6] * 8, "category")),
    "k of 1": lambda _: fitted(BOARD, k=1),
    "k of 10,000": lambda _: fitted(BOARD, k=10_000),
    "batch_size of 1": lambda _: fitted(rows(), batch_size=1),
    "batch_size without end": lambda _: fitted(BOARD, batch_size=HUGE),
    "more negatives than items": lambda _: fitted(BOARD, negatives=500),
    "negatives without end": lambda _: fitted(BOARD, negatives=HUGE),
    "threads of 1,024": lambda _: fitted(BOARD, threads=1_024),
    "no epochs": lambda _: fitted(BOARD, epochs=0),
    "a rate of 1e-30": lambda _: fitted(BOARD, lr=1e-30),
    "a rate of 1e30": lambda _: fitted(BOARD, lr=1e30),
    "a list longer than the catalogue": lambda _: Recommender("popularity").fit(BOARD).recommend(["u1"], HUGE),
    "a user 100,000 times": lambda _: Recommender("fm", **QUICK).fit(BOARD).recommend(["u1"] * 100_000, 1),
    "a cut-off without end": lambda _: Recommender("popularity").fit(BOARD).evaluate(cutoffs=(HUGE,)),
    "a filter that leaves one item": lambda _: Recommender("fm", **QUICK).fit(BOARD).recommend(["u1"], 5, filter="item = 'i3'"),
    "a row in memory": lambda folder: prepared(folder, rows_per_bucket=1),
    "buckets without end": lambda folder: prepared(folder, rows_per_bucket=HUGE),
    "everything below min_count": lambda _: fitted(
        Dataset.from_tables(
            pl.DataFrame({"u": ["a", "b", "c"] * 5, "i": [f"i{n}" for n in range(15)]}),
            schema={"interactions": {"user": "u", "item": "i"}, "min_count": {"user": 10**9, "item": 10**9}},
        )
    ),
}


def _stop(number: int, frame: Any) -> None:
    raise TimeoutError("no end")


@pytest.mark.parametrize("name", CLIFFS)
def test_cliffs(name: str, tmp_path: Path) -> None:
    signal.signal(signal.SIGALRM, _stop)
    signal.alarm(_SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            check(CLIFFS[name], tmp_path)
    finally:
        signal.alarm(0)


def test_there_are_as_many_as_were_tried_by_hand() -> None:
    assert len(CLIFFS) >= 30
