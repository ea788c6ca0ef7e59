from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from gmlfm.data.profiles import profile


@pytest.mark.parametrize(
    ("name", "values", "looks", "reason"),
    [
        ("x", [None, None, None], "empty", "no value at all"),
        ("x", ["a", "a", "a"], "constant", "always 'a'"),
        ("x", ["a", None, "a"], "category", "'a' or nothing, 33% missing"),
        ("x", [["a"], ["b"], []], "set", "lists"),
        ("x", ["a|b", "b|c", "a|c"], "set", "several values separated by '|'"),
        ("bought", [1_500_000_000, 1_500_000_001, 1_500_000_001], "time", "whole numbers that read as moments"),
        ("x", ["2020-01-01", "2020-01-02", "2020-01-02"], "time", "dates such as '2020-01-01'"),
        ("x", ["01/02/2020", "02/03/2020", "02/03/2020"], "time", "dates; whether day or month comes first cannot be told"),
        ("plz", ["01067", "80331", "80331"], "category", "digits with leading zeros: a code, not a number"),
        ("x", [1.5, 2.0, 2.0], "number", "numbers with decimals"),
        ("x", ["1,5", "2", "2"], "number", "numbers with a decimal comma"),
        ("price", [1, 2, 2], "number", "whole numbers from 1 to 2"),
        ("x", [1, 2, 3], "key", "whole numbers, each once"),
        ("x", [1, 2, 2], "category", "2 different whole numbers: taken as codes"),
        ("x", ["a", "b", "b"], "category", "2 different texts"),
        ("x", ["a", "b", "c"], "key", "each value once"),
        ("x", ["a b", "c d e", "f g"], "text", "mostly different texts with spaces"),
    ],
)
def test_a_column_looks_like_what_it_holds(name: str, values: list[Any], looks: str, reason: str) -> None:
    column = profile(pl.Series(name, values, strict=False))
    assert column.looks == looks
    assert column.reason.startswith(reason)
