from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from gmlfm.data.atomic import AtomicType
from gmlfm.data.column_words import words_of
from gmlfm.data.profiles import profile


@pytest.mark.parametrize(
    ("name", "values", "looks", "reason"),
    [
        ("x", [None, None, None], "empty", "no value at all"),
        ("x", ["a", "a", "a"], "constant", "always 'a'"),
        ("x", ["a", None, "a"], "category", "'a' or nothing, 33% missing"),
        ("x", [["a"], ["b"], []], "set", "lists"),
        ("x", ["a|b", "b|c", "a|c"], "set", "several values separated by '|'"),
        ("x", ["Simon &amp; Schuster", "Seuil"] * 5, "category", "2 different texts"),
        ("x", ["word; and " * 200, "word; or " * 200, "word; or " * 200], "text", "mostly different texts with spaces"),
        ("bought", [1_500_000_000, 1_500_000_001, 1_500_000_001], "time", "whole numbers that read as moments"),
        ("column_4", [978300760, 978302109, 978302109], "time", "whole numbers that read as moments"),
        ("column_4", [978300760, 5, 5], "category", "2 different whole numbers"),
        ("x", [978300760, 978302109, 978302109], "category", "2 different whole numbers"),
        ("x", ["2020-01-01", "2020-01-02", "2020-01-02"], "time", "dates such as '2020-01-01'"),
        ("x", ["01/02/2020", "02/03/2020", "02/03/2020"], "time", "dates; whether day or month comes first cannot be told"),
        ("x", ["1-2-20", "2-3-20", "2-3-20"], "time", "dates; whether day or month comes first cannot be told"),
        ("plz", ["01067", "80331", "80331"], "category", "digits with leading zeros: a code, not a number"),
        ("x", [1.5, 2.0, 2.0], "number", "numbers with decimals"),
        ("x", ["1,5", "2", "2"], "number", "numbers with a decimal comma"),
        ("price", [1, 2, 2], "number", "whole numbers from 1 to 2"),
        ("x", [1, 2, 3], "key", "whole numbers, each once"),
        ("x", [1, 2, 2], "category", "2 different whole numbers: taken as codes"),
        ("x", ["a", "b", "b"], "category", "2 different texts"),
        ("x", ["a", "b", "c"], "key", "each value once"),
        ("x", [f"t{n}" for n in range(95)] + ["t0"] * 5, "key", "95 different texts, almost each once"),
        ("x", [f"t{n}" for n in range(80)] + ["t0"] * 20, "category", "80 different texts"),
        ("zip", [f"0{n}" for n in range(100, 195)] + ["0100"] * 5, "key", "digits with leading zeros"),
        ("zip", [f"{n}" for n in range(100, 195)] + ["100"] * 5, "key", "95 different codes, almost each once"),
        ("x", ["http://a.b/c", "https://a.b/d", "www.a.b/e"] * 9, "address", "web addresses: not for training"),
        ("x", ["http://a.b/c|http://a.b/d", "https://a.b/c"] * 9, "address", "web addresses: not for training"),
        (
            "year",
            ["1999"] * 60 + ["2001"] * 60 + ["Gallimard"],
            "category",
            "numbers but for 1 text(s) such as 'Gallimard': taken as 3",
        ),
        ("price", [f"{n}.5" for n in range(2000)] + ["free"], "text", "numbers but for 1 text(s) such as 'free': mend them"),
        ("price", [f"{n},5" for n in range(6000)] + ["free"], "text", "numbers but for 1 text(s) such as 'free': mend them"),
        ("sku", [f"{n}" for n in range(2000)] + ["A1", "A1"], "key", "2,001 different texts, almost each once"),
        ("x", ["2020-01-01"] * 6000 + ["soon"], "text", "dates in its first rows, but not in all"),
        ("x", ["a b", "c d e", "f g"], "text", "mostly different texts with spaces"),
    ],
)
def test_a_column_looks_like_what_it_holds(name: str, values: list[Any], looks: str, reason: str) -> None:
    column = profile(pl.Series(name, values, strict=False))
    assert column.looks == looks
    assert column.reason.startswith(reason)


@pytest.mark.parametrize(
    ("name", "values", "declared", "looks", "reason"),
    [
        ("age", ["30", "41", "41"], "token", "category", "RecBole's token: 2 different texts"),
        ("user_id", ["1", "2", "3"], "token", "key", "RecBole's token: each value once"),
        ("genre", ["a b", "c", "c"], "token_seq", "set", "RecBole's token_seq: several values separated by spaces"),
        ("rating", ["3", "4.5", "4"], "float", "number", "RecBole's float: from 3 to 4.5"),
        ("code", ["3", "4", "4"], "float", "number", "RecBole's float: from 3 to 4"),
        ("timestamp", ["881250949", "881250950", "881250950"], "float", "time", "whole numbers that read as moments"),
        ("rating", ["3", "good", "good"], "float", "text", "RecBole's float, but 'good' is no number"),
        ("vector", ["0.1 0.2", "0.3 0.4", "0.3 0.4"], "float_seq", "text", "RecBole's float_seq: lists of numbers"),
        ("vector", ["0.1", "0.1", "0.1"], "float_seq", "constant", "always '0.1'"),
    ],
)
def test_a_declared_type_goes_before_the_look(
    name: str, values: list[str], declared: AtomicType, looks: str, reason: str
) -> None:
    for column in (profile(pl.Series(name, values), declared), profile(pl.Series(f"{name}:{declared}", values), declared)):
        assert column.looks == looks
        assert column.reason.startswith(reason)
        assert column.words == words_of(name)
    assert profile(pl.Series("genre", ["a b", "c", "c"]), "token_seq").separator == " "


def test_a_comma_within_names_makes_no_set() -> None:
    names = ["Halle, Saale", "Leipzig", "Rowohlt, Hamburg", "Leipzig", "Halle, Saale", "Dresden"] * 5
    assert profile(pl.Series("place", names)).looks == "category"
    assert profile(pl.Series("tags", ["red, blue", "blue, green", "red", "green, red", "blue"] * 5)).separator == ","


def test_nested_objects_are_left_out() -> None:
    values = ['{"pages": 510, "height": 19.5}', '{"pages": 90, "height": 21.0}', '{"pages": 90, "height": 19.5}'] * 5
    look = profile(pl.Series("size", values))
    assert (look.looks, look.reason) == ("text", "nested objects: not for training")
