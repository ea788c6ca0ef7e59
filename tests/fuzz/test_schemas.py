"""Descriptions of data: a dataset.toml damaged or of nonsense, and schemas with any value in any place."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gmlfm import Dataset, load_dataset
from tests.fuzz.cases import DAMAGES, Case, check, damaged, generator, n_cases, named

TABLES: dict[str, dict[str, list[Any]]] = {
    "interactions": {
        "buyer": ["b1", "b2", "b1", "b3"],
        "sku": ["s1", "s2", "s3", "s1"],
        "when": ["2020-01-03", "2020-01-04", "2020-02-05", None],
        "stars": [5, 3, None, 1],
        "n": [1, 2, 1, 1],
        "device": ["web", "app", None, "web"],
        "event": ["see", "buy", "buy", None],
    },
    "users": {"buyer": ["b1", "b2"], "city": ["Rome", None], "age": [30.5, None]},
    "items": {"sku": ["s1", "s2"], "tags": ["a|b", ""], "price": [1.5, 2], "name": ["One", None], "since": [1, 2]},
}
SCHEMA: dict[str, Any] = {
    "name": "shop",
    "interactions": {
        "user": "buyer",
        "item": "sku",
        "time": "when",
        "time_format": "%Y-%m-%d",
        "label": "stars",
        "positive": "stars >= 2",
        "weight": "n",
        "repeats": "merge",
        "ties": "strict",
        "event": "event",
        "targets": ["buy"],
        "history_events": ["see", "buy"],
        "context": {"device": "category"},
    },
    "users": {"id": "buyer", "fields": {"city": "category", "age": "number"}},
    "items": {
        "id": "sku",
        "fields": {"tags": {"kind": "set", "separator": "|", "weighting": "mean"}, "price": "number"},
        "title": "name",
        "sells_once": "auto",
        "listed": "since",
    },
    "encoding": {"min_count": {"item": 2, "tags": 1}, "read": {"separator": ";", "null": ["NULL"], "tolerate": 0}},
}
TOML = """name = "shop"

[interactions]
path = "t.csv"
user = "buyer"
item = "sku"
time = "when"
positive = "n >= 1 and (sku != 's9' or not buyer in ('x', 'y'))"
context = { device = "category" }
event = "what"
targets = ["buy"]
ties = "file"

[items]
path = "i.csv"
id = "sku"
fields = { tags = { kind = "set", separator = "|" }, price = "number" }

[encoding]
min_count = { item = 2 }
read = { separator = ",", null = ["NULL", ""], tolerate = 1 }
"""
ANYTHING: list[Any] = [
    *(None, True, False, 0, 1, -1, 2**70, 10**400, 1.5, float("nan"), float("inf")),
    *("", " ", "\0", "\n", "\ud800", "\x1b[31m", "x" * 100_000, "buyer", "sku", "stars", "category", "set", "number", "keep"),
    *([], ["a", "a"], [1], {}, {"kind": "set"}, {"kind": "set", "separator": ""}, {"a": {"b": {}}}, {"": "category"}, b"x"),
    *("%", "%Y%", "%q", "%+", "%s%s", "%1000000Y", "%d/%m/%Y", "stars > ", "(" * 2_000, "`", "stars in ()", "stars < 'a'"),
    object(),
]
KEYS = ["name", "path", "user", "id", "kind", "separator", "", "\0", "\ud800", "x" * 5_000, "User", "sku", "tolerate", 3, None]


def places(table: dict[Any, Any]) -> Iterator[tuple[dict[Any, Any], Any]]:
    for key, value in table.items():
        yield table, key
        if isinstance(value, dict):
            yield from places(value)


def edited(seed: int) -> dict[str, Any]:
    """The schema after one to four edits: a key gone, renamed or added, or any value in its place."""
    rng = generator("schema", seed)
    schema = copy.deepcopy(SCHEMA)
    for _ in range(rng.integers(1, 5)):
        targets = list(places(schema))
        if not targets:
            break
        table, key = targets[rng.integers(len(targets))]
        edit = rng.integers(4)
        if edit == 0:
            del table[key]
        elif edit == 1:
            table[KEYS[rng.integers(len(KEYS))]] = table.pop(key)
        elif edit == 2:
            table[KEYS[rng.integers(len(KEYS))]] = copy.deepcopy(table[key])
        else:
            table[key] = ANYTHING[rng.integers(len(ANYTHING))]
    return schema


def built(_: Path, schema: Any) -> None:
    tables = {
        name: table for name, table in TABLES.items() if not isinstance(schema, dict) or name in {"interactions", *schema}
    }
    Dataset.from_tables(**tables, schema=schema)


def loaded(folder: Path, toml: bytes) -> None:
    (folder / "t.csv").write_text("buyer,sku,when,n,device,what\nb1,s1,5,1,web,buy\nb2,s2,6,2,app,see\nb1,s2,7,1,,buy\n")
    (folder / "i.csv").write_text("sku,tags,price\ns1,a|b,1.5\ns2,,2\n")
    (folder / "dataset.toml").write_bytes(toml)
    load_dataset(folder)


HOSTILE = {
    "empty": b"",
    "nul": b"\0",
    "noise": bytes(range(256)),
    "deep arrays": b"a = " + b"[" * 20_000,
    "deep arrays closed": b"a = " + b"[" * 900 + b"]" * 900,
    "deep tables": b"a = " + b"{ a = " * 5_000,
    "deep dotted keys": b".".join([b"a"] * 20_000) + b" = 1",
    "deep headers": b"[" + b".".join([b"a"] * 20_000) + b"]",
    "50 digits": TOML.encode().replace(b"tolerate = 1", b"tolerate = " + b"9" * 50),
    "5000 digits": TOML.encode().replace(b"tolerate = 1", b"tolerate = " + b"9" * 5_000),
    "a date": TOML.encode().replace(b'"shop"', b"2020-01-01T00:00:00Z"),
    "half a pair": TOML.encode().replace(b'"shop"', b'"\\ud800"'),
    "nul in a text": TOML.encode().replace(b'"t.csv"', b'"t\\u0000.csv"'),
    "nul in a key": TOML.encode().replace(b"device =", b'"dev\\u0000ice" ='),
    "escapes in a key": TOML.encode().replace(b"positive =", b'"\\u001b[31m" ='),
    "a table twice": TOML.encode() + b"[items]\n",
    "a key twice": TOML.encode().replace(b'name = "shop"', b'name = "shop"\nname = "x"'),
    "an array of tables": TOML.encode().replace(b"[interactions]", b"[[interactions]]"),
    "deep brackets": TOML.encode().replace(b"n >= 1", b"(" * 5_000 + b"n >= 1" + b")" * 5_000),
    "many nots": TOML.encode().replace(b"n >= 1", b"not " * 5_000 + b"n >= 1"),
    "many ors": TOML.encode().replace(b"n >= 1", b" or ".join([b"n >= 1"] * 5_000)),
    "a long condition": TOML.encode().replace(b"'s9'", b"'" + b"x" * 200_000 + b"'"),
    "a long name": TOML.encode().replace(b'"shop"', b'"' + b"x" * 1_000_000 + b'"'),
    "a mark": b"\xef\xbb\xbf" + TOML.encode(),
    "crlf": TOML.encode().replace(b"\n", b"\r\n"),
    "cr": TOML.encode().replace(b"\n", b"\r"),
    "utf-16": TOML.encode("utf-16"),
    "20 MiB": TOML.encode() + b"#" * (20 << 20),
}


def all_cases() -> Iterator[tuple[str, Case]]:
    for seed in range(n_cases(250)):
        yield f"edited {seed}", partial(built, schema=edited(seed))
    for number, schema in enumerate(ANYTHING):
        yield f"anything {number}", partial(built, schema=schema)
    for number in range(n_cases(64)):
        kind = DAMAGES[number % len(DAMAGES)]
        yield f"toml {kind} {number}", partial(loaded, toml=damaged(TOML.encode(), kind, generator("toml", number)))
    for name, toml in HOSTILE.items():
        yield f"toml {name}", partial(loaded, toml=toml)


CASES = named(all_cases())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_a_schema_is_taken_or_refused_in_one_sentence(name: str, tmp_path: Path) -> None:
    check(CASES[name], tmp_path)


def test_unedited_they_are_taken(tmp_path: Path) -> None:
    assert check(partial(built, schema=copy.deepcopy(SCHEMA)), tmp_path) == ""
    assert check(partial(loaded, toml=TOML.encode()), tmp_path) == ""
