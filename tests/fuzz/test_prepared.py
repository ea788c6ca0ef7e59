"""Prepared folders of which any file is flipped, cut, gone or edited, unfinished ones, and split files of nonsense."""

from __future__ import annotations

import io
import json
import os
import tempfile
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from gmlfm import Dataset, Schema, make_split
from gmlfm.data.prepared import PreparedData
from gmlfm.data.refitting import RefittedData
from gmlfm.data.restoring import restore
from gmlfm.data.sources.preparing import prepare
from tests.fuzz.cases import DAMAGES, Case, check, damaged, generator, n_cases, named

TOML = """name = "shop"
[interactions]
path = "rows.parquet"
user = "u"
item = "i"
time = "t"
label = "stars"
context = { device = "category", mood = "set" }
[items]
path = "items.parquet"
id = "i"
fields = { tags = "set", price = "number", colour = "category" }
title = "name"
listed = "since"
sells_once = true
"""
ANYTHING: list[Any] = [
    None,
    True,
    -1,
    0,
    1,
    7,
    10**9,
    10**30,
    2**63,
    1.5,
    "",
    "x",
    "../../etc",
    "a\0b",
    "\ud800",
    [],
    {},
    ["a"],
]


def write_tables(folder: Path) -> None:
    rng = np.random.default_rng(3)
    n = 200
    rows = {"u": rng.integers(20, size=n), "i": np.arange(n) % 170, "t": np.arange(n) + 5, "stars": rng.random(n)}
    moods = [[["calm", "late"][m] for m in rng.choice(2, rng.integers(3), replace=False)] for _ in range(n)]
    columns = {"device": ["web", "app"] * (n // 2), "mood": moods}
    pl.DataFrame({**rows, **columns}, schema_overrides={"mood": pl.List(pl.String)}).write_parquet(folder / "rows.parquet")
    tags = [[f"t{tag}" for tag in rng.choice(9, rng.integers(4), replace=False)] for _ in range(180)]
    items = {"i": range(180), "tags": tags, "price": rng.random(180), "colour": ["red", None] * 90, "name": ["A"] * 180}
    since = {"since": [1] * 180}
    pl.DataFrame({**items, **since}, schema_overrides={"tags": pl.List(pl.String)}).write_parquet(folder / "items.parquet")
    (folder / "dataset.toml").write_text(TOML)
    for path in folder.iterdir():
        os.utime(path, ns=(0, 0))


def prepared_in(folder: Path, **options: Any) -> None:
    prepare(Schema.from_toml(folder / "dataset.toml"), folder, folder / "p", rows_per_bucket=80, **options)


@cache
def finished() -> dict[str, bytes]:
    """The files of a prepared folder."""
    with tempfile.TemporaryDirectory() as name:
        write_tables(Path(name))
        prepared_in(Path(name))
        return tree(Path(name) / "p")


@cache
def unfinished() -> dict[str, bytes]:
    """The files of a folder whose preparation was stopped before the interactions were encoded, and of its tables."""
    with tempfile.TemporaryDirectory() as name:
        write_tables(Path(name))

        def stop(step: str, *_: int) -> None:
            if step == "encoding interactions":
                raise KeyboardInterrupt

        try:
            prepared_in(Path(name), progress=stop)
        except KeyboardInterrupt:
            pass
        return tree(Path(name))


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def lay(files: dict[str, bytes], folder: Path) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        os.utime(path, ns=(0, 0))  # a preparation goes on where its tables are as old as they were


def read_all(folder: Path, refit: bool) -> None:
    """Everything that training reads of a prepared folder, and on request a refit."""
    prepared = PreparedData(folder)
    _ = prepared.users, prepared.items, prepared.values, prepared.occurrences, prepared.bounds
    for _ in prepared.shards():
        pass
    restore(prepared)
    if refit:
        refitted = RefittedData(prepared, (0, 1))
        _ = refitted.users, refitted.items


def with_files(folder: Path, changes: dict[str, bytes | None], refit: bool = False) -> None:
    files = {name: content for name, content in {**finished(), **changes}.items() if content is not None}
    lay(files, folder / "p")
    read_all(folder / "p", refit)


def damages() -> Iterator[tuple[str, Case]]:
    for name, content in finished().items():
        yield f"{name} gone", partial(with_files, changes={name: None})
        yield f"{name} empty", partial(with_files, changes={name: b""})
        for number in range(n_cases(4)):
            rng = generator(name, number)
            kind = DAMAGES[int(rng.integers(len(DAMAGES)))]
            yield f"{name} {kind} {number}", partial(with_files, changes={name: damaged(content, kind, rng)})


def swaps() -> Iterator[tuple[str, Case]]:
    names = sorted(finished())
    for number in range(n_cases(20)):
        one, two = generator("swap", number).choice(len(names), 2, replace=False)
        changes = {names[one]: finished()[names[two]], names[two]: finished()[names[one]]}
        yield f"swap {number}", partial(with_files, changes=changes)


def edited(seed: int) -> bytes:
    """prepared.json after one to three edits, as another engine might have written it: without checksums."""
    rng = generator("edit", seed)
    content = json.loads(finished()["prepared.json"])
    content.pop("sha256", None)
    if rng.random() < 0.8:
        content.pop("checksums", None)
    for _ in range(rng.integers(1, 4)):
        targets = list(_places(content))
        parent, key = targets[rng.integers(len(targets))]
        edit = rng.integers(4)
        if edit == 0:
            del parent[key]
        elif edit == 1 and isinstance(parent[key], int):
            parent[key] += int(rng.integers(-3, 4))
        else:
            parent[key] = ANYTHING[rng.integers(len(ANYTHING))]
    return json.dumps(content).encode()


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], dict | list) and value[key]:
            yield from _places(value[key])


def edits() -> Iterator[tuple[str, Case]]:
    for seed in range(n_cases(60)):
        yield f"edit {seed}", partial(with_files, changes={"prepared.json": edited(seed)})
    for name, text in (
        ("deep", b"[" * 50_000),
        ("digits", b'{"format": ' + b"3" * 5_000 + b"}"),
        ("list", b"[3]"),
        ("text", b'"3"'),
    ):
        yield f"prepared.json {name}", partial(with_files, changes={"prepared.json": text})


def columns_changed(name: str, seed: int) -> bytes:
    """A shard that another engine got wrong: a column gone, of another type, missing or out of range."""
    rng = generator("column", name, seed)
    frame = pl.read_parquet(io.BytesIO(finished()[name]))
    column = frame.columns[rng.integers(frame.width)]
    change = int(rng.integers(6))
    if change == 0:
        frame = frame.drop(column)
    elif change == 1:
        frame = frame.with_columns(pl.lit(None, frame[column].dtype).alias(column))
    elif change == 2:
        frame = frame.with_columns(pl.lit("x").alias(column))
    elif change == 3:
        frame = frame.with_columns(pl.lit(10**6).alias(column))
    elif change == 4:
        frame = frame.with_columns(pl.lit([-5, 10**6], pl.List(pl.Int64)).alias(column))
    else:
        frame = frame[: frame.height // 2]
    file = io.BytesIO()
    frame.write_parquet(file)
    return file.getvalue()


def other_engines() -> Iterator[tuple[str, Case]]:
    content = json.loads(finished()["prepared.json"])
    for key in ("sha256", "checksums"):
        content.pop(key, None)
    bare = json.dumps(content).encode()
    names = [name for name in finished() if name.endswith(".parquet")]
    for number in range(n_cases(40)):
        name = names[number % len(names)]
        changes: dict[str, bytes | None] = {name: columns_changed(name, number), "prepared.json": bare}
        changes |= {cached: None for cached in finished() if cached.startswith("cache/")}
        yield f"column {name} {number}", partial(with_files, changes=changes, refit=True)


def continued(folder: Path, name: str, content: bytes | None) -> None:
    files = {**unfinished(), name: content}
    lay({path: bytes_ for path, bytes_ in files.items() if bytes_ is not None}, folder)
    prepared_in(folder)


def continuations() -> Iterator[tuple[str, Case]]:
    names = sorted(name for name in unfinished() if name.startswith("p/"))
    for number in range(n_cases(16)):
        rng = generator("continued", number)
        name = names[int(rng.integers(len(names)))]
        kind = DAMAGES[number % len(DAMAGES)]
        content = None if number % 5 == 0 else damaged(unfinished()[name], kind, rng)
        yield f"unfinished {name} {number}", partial(continued, name=name, content=content)


PAIRS = b"user,item\nu1,i1\nu2,i3\n"
LISTS = b"(u1,i1)\ti4\ti5\n(u2,i3)\ti0\ti2\n"
SPLITS: dict[str, bytes] = {
    "nothing": b"",
    "other columns": b"a,b\n1,2\n",
    "ids of nobody": b"user,item\nx,y\n",
    "no pair": b"user,item\nu1,i9\n",
    "missing": b"user,item\nu1,\n",
    "twice": PAIRS + b"u1,i1\n",
    "brackets": b"(((((\n",
    "half a bracket": b"(u1,i1\ti4\n",
    "an empty list": b"(u1,i1)\n",
    "itself": b"(u1,i1)\ti1\n",
    "digits": b"user,item\n" + b"9" * 400 + b",i1\n",
    "nul": b"user,item\nu\0,i1\n",
    "bytes": b"user,item\n\xff\xfe,i1\n",
    "escapes": b"user,item\n\x1b[31m,i1\n",
    "quotes": b'user,item\n"u1,i1\n',
}


def split(folder: Path, rows: bytes, lists: bytes, suffix: str = ".csv") -> None:
    (folder / f"test{suffix}").write_bytes(rows)
    (folder / "lists.negative").write_bytes(lists)
    table = {"user": ["u2", *(f"u{n % 4}" for n in range(20))], "item": ["i3", *(f"i{n % 10}" for n in range(20))]}
    data = Dataset.from_tables(table, schema={"interactions": {"user": "user", "item": "item"}})
    make_split(data, "files", test=folder / f"test{suffix}", test_candidates=folder / "lists.negative")


def splits() -> Iterator[tuple[str, Case]]:
    for name, content in SPLITS.items():
        yield f"split rows {name}", partial(split, rows=content, lists=LISTS)
        yield f"split lists {name}", partial(split, rows=PAIRS, lists=content)
    for number in range(n_cases(40)):
        kind, rng = DAMAGES[number % len(DAMAGES)], generator("split", number)
        rows, lists = (damaged(PAIRS, kind, rng), LISTS) if number % 2 else (PAIRS, damaged(LISTS, kind, rng))
        yield f"split {kind} {number}", partial(split, rows=rows, lists=lists)
    yield "split parquet", partial(split, rows=b"PAR1", lists=LISTS, suffix=".parquet")


CASES = named(case for cases in (damages, swaps, edits, other_engines, continuations, splits) for case in cases())


@pytest.mark.parametrize("name", CASES)
def test_a_folder_or_split_is_read_or_refused_in_one_sentence(name: str, tmp_path: Path) -> None:
    check(CASES[name], tmp_path)


def test_undamaged_they_are_read(tmp_path: Path) -> None:
    assert check(partial(with_files, changes={}, refit=True), tmp_path) == ""
    assert check(partial(split, rows=PAIRS, lists=LISTS), tmp_path) == ""
    (tmp_path / "c").mkdir()
    assert check(partial(continued, name="x", content=b""), tmp_path / "c") == ""


def test_every_damaged_table_of_a_folder_is_seen(tmp_path: Path) -> None:
    """Also where polars would read something else from it without a word; a damaged cache is made anew."""
    for number, (name, content) in enumerate(finished().items()):
        changed = damaged(content, "flip", generator("seen", name))
        folder = tmp_path / str(number)
        message = check(partial(with_files, changes={name: changed}), folder)
        assert bool(message) == (not name.startswith("cache/")), name
