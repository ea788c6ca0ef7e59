"""Conditions of nonsense, and conditions drawn with their meaning: each is evaluated as its rows say, or refused in one sentence."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings

from gmlfm import Dataset
from gmlfm.data.dataset import Side
from gmlfm.recommender.candidates import fulfils
from tests.data.slow_conditions import Drawn, conditions, table_of, tables
from tests.fuzz.cases import Case, check, generator, n_cases, named

WORDS = """and or not in is null like contains ( ) [ ] , = == != <> < <= > >= stars shop tags `two words` `7up` two words 'a' "b"
'it\\'s' '%' '_a%' '\\\\' 0 1 -1 .5 1e3 1e400 99999999999999999999 title item nobody ' " ` `` \\ % _ ; -- /* $ @ 日本 🦆 \x1b \0 \ud800 \n""".split(
    " "
)
VALID = [
    "stars >= 3 and not (shop = 'a' or tags contains 'b')",
    "'a' in tags and `two words` not in ('x', 'y')",
    "shop like 'a%_' or stars in [1, 2.5, -3e2]",
    "tags is not null and shop is null or not not stars <> 0.5",
]
HOSTILE = {
    "brackets": "(" * 100_000,
    "closed brackets": "(" * 5_000 + "stars = 1" + ")" * 5_000,
    "brackets of 330": "(" * 330 + "stars = 1" + ")" * 330,
    "closing brackets": ")" * 100_000,
    "nots": "not " * 5_000 + "stars = 1",
    "nots without end": "not " * 100_000,
    "ors": " or ".join(["stars = 1"] * 20_000),
    "ands and ors": " and ".join(["(stars = 1 or shop = 'a')"] * 3_000),
    "a long text": "shop = '" + "x" * 1_000_000 + "'",
    "a long name": "x" * 1_000_000 + " = 1",
    "a long number": "stars = " + "9" * 1_000_000,
    "a long list": "stars in (" + ", ".join(["1"] * 200_000) + ")",
    "a long pattern": "shop like '" + "%a" * 50_000 + "'",
    "a pattern of one character each": "shop like '" + "_" * 999 + "'",
    "a pattern of many texts": "shop like '" + "%_" * 499 + "'",
    "spaces": " " * 1_000_000,
    "a text without end": "shop = '" + "x" * 100_000,
    "backslashes": "shop = '" + "\\" * 100_001 + "'",
    "a name without end": "`" * 99_999,
    "50 digits": "stars > " + "9" * 50,
    "400 digits": "stars > " + "9" * 400,
    "a small number": "stars > 1e-400",
    "half a pair": "shop = '\ud800'",
    "half a pair as name": "`\ud800` = 1",
    "nul": "shop = '\0'",
    "escapes": "\x1b[31m = 1",
    "code": "__import__('os').system('true')",
    "sql": "stars = 1; drop table users --",
    "a number and a text": "stars < 'abc'",
    "a text and a number": "shop < 5",
    "a set and a text": "tags = 'a'",
    "nothing": "",
}


@cache
def side() -> Side:
    table = table_of(1)
    fields = table.select("tags", "shop", "two words", "7up", "stars")
    ids = pl.Series("id", [f"i{n}" for n in range(table.height)])
    return Side(ids, "text", fields, pl.Series("title", ["A"] * table.height), table.height)


def filtered(_: Path, condition: str) -> None:
    assert fulfils(side(), condition).shape == (len(side()),)


def positive(_: Path, condition: str) -> None:
    table = {"user": ["a", "b"], "item": ["x", "y"], "stars": [1, None], "shop": ["a", None]}
    schema = {"interactions": {"user": "user", "item": "item", "positive": condition}}
    Dataset.from_tables(table, schema=schema)


def soup(seed: int) -> str:
    """Words of the language and others, in any order."""
    rng = generator("soup", seed)
    return rng.choice(["", " "], p=[0.2, 0.8]).join(
        WORDS[place] for place in rng.integers(len(WORDS), size=rng.integers(1, 25))
    )


def mutated(seed: int) -> str:
    """A condition with some of its characters gone, doubled, exchanged or replaced."""
    rng = generator("mutated", seed)
    characters = list(VALID[seed % len(VALID)])
    for _ in range(rng.integers(1, 3)):
        place = int(rng.integers(len(characters)))
        change = rng.integers(4)
        if change == 0:
            del characters[place : place + int(rng.integers(1, 4))]
        elif change == 1:
            characters[place:place] = characters[place : place + int(rng.integers(1, 9))]
        elif change == 2:
            characters[place] = chr(rng.integers(32, 127))
        else:
            characters[place] = str(rng.choice(list("()'\"`\\ \0\n日")))
        characters = characters or ["x"]
    return "".join(characters)


def all_cases() -> Iterator[tuple[str, Case]]:
    for name, condition in HOSTILE.items():
        yield f"filter {name}", partial(filtered, condition=condition)
        yield f"positive {name}", partial(positive, condition=condition)
    for seed in range(n_cases(300)):
        yield f"soup {seed}", partial(filtered, condition=soup(seed))
        yield f"mutated {seed}", partial(filtered if seed % 3 else positive, condition=mutated(seed))


CASES = named(all_cases())


@pytest.mark.parametrize("name", CASES)
def test_a_condition_is_evaluated_or_refused_in_one_sentence(name: str, tmp_path: Path) -> None:
    check(CASES[name], tmp_path)


def test_unchanged_they_are_evaluated() -> None:
    for condition in VALID:
        filtered(Path(), condition)
    n_understood = 0
    for seed in range(300):
        n_understood += check(partial(filtered, condition=mutated(seed)), Path("/nowhere")) == ""
    assert 10 < n_understood < 290


@settings(max_examples=n_cases(300), derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(tables, conditions)
def test_a_filter_takes_the_items_that_its_meaning_takes(table: pl.DataFrame, drawn: Drawn) -> None:
    condition, meaning = drawn
    items = Side(pl.Series("id", [f"i{n}" for n in range(table.height)]), "text", table, None, table.height)
    expected = [meaning(row) is True for row in table.to_dicts()]
    np.testing.assert_array_equal(fulfils(items, condition), expected, err_msg=condition)
