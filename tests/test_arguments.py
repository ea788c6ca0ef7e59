from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from gmlfm.arguments import id_of, ids_of, mapping, one_of, path_of, shown, whole_number
from gmlfm.errors import OptionError


def test_ids_are_texts_and_whole_numbers() -> None:
    assert ids_of("u17") == ["u17"]
    assert ids_of(17) == [17]
    assert ids_of(pl.Series(["a", "b"])) == ["a", "b"]
    assert ids_of(np.array([3, 4])) == [3, 4]
    assert ids_of(("a", 1, 2.0)) == ["a", 1, 2.0]
    assert ids_of([]) == []


@pytest.mark.parametrize("odd", [None, True, 0.5, b"a", object(), {"a": 1}, ["a", None], [b"a"], [["a"]], ["\ud800"], [True]])
def test_what_is_no_id_is_refused(odd: Any) -> None:
    with pytest.raises(OptionError, match=r"expected (in a list; got .*|a text or a whole number)"):
        ids_of(odd)
    with pytest.raises(OptionError, match=r"the user is .*; expected a text or a whole number"):
        id_of(odd if not isinstance(odd, list) else odd[-1], "the user")


def test_whole_numbers() -> None:
    assert whole_number(np.int32(3), "n") == 3
    for odd in (True, 2.0, "3", None, -1, np.arange(3), pl.Series([1])):
        with pytest.raises(OptionError, match=r"n is .*; expected a whole number of 0 or more\."):
            whole_number(odd, "n")
    with pytest.raises(OptionError, match=re.escape("n is 2000; expected a whole number of 1 to 1,000.")):
        whole_number(2000, "n", 1, 1000)


def test_names_among_others() -> None:
    assert one_of("full", "protocol", ("full", "sampled")) == "full"
    with pytest.raises(OptionError, match="split is 'randm'; did you mean 'random'"):
        one_of("randm", "split", ("auto", "files", "random", "none"))
    with pytest.raises(OptionError, match="protocol is 'ful'; did you mean 'full'"):
        one_of("ful", "protocol", ("full", "sampled", "paper"))
    for odd in ("zzz", None, np.arange(3), pl.DataFrame()):
        with pytest.raises(OptionError, match=r"protocol is .*; expected full, sampled or paper\."):
            one_of(odd, "protocol", ("full", "sampled", "paper"))
    with pytest.raises(OptionError, match=r"preset is 'x'; expected paper\."):
        one_of("x", "preset", ("paper",))


def test_mappings_have_names() -> None:
    assert mapping({"a": 1}, "context", "{}") == {"a": 1}
    for odd in (None, [], {None: 1}, {1: 2}, pl.DataFrame()):
        with pytest.raises(OptionError, match=r"context is .*; expected names and values, such as \{'a': 1\}"):
            mapping(odd, "context", "{'a': 1}")


def test_paths() -> None:
    assert path_of("a/b", "it") == path_of(Path("a/b"), "it") == Path("a/b")
    for odd in (None, 3, b"a", "", ["a"]):
        with pytest.raises(OptionError, match=r"it is .*; expected the path of a folder"):
            path_of(odd, "it")


def test_values_are_shown_short() -> None:
    assert shown("x" * 100) == "'" + "x" * 59 + "..."
    assert shown(pl.DataFrame()) == "a DataFrame"
    assert shown(None) == "None"
