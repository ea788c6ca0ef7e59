from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from gmlfm.typed_json import from_json


@dataclass(frozen=True)
class Part:
    name: str
    kind: Literal["a", "b"] = "a"
    size: float = 1.0


@dataclass(frozen=True)
class Whole:
    parts: tuple[Part, ...]
    counts: Mapping[str, int]
    is_new: Literal["auto"] | bool
    title: str | None = None


GOOD = {"parts": [{"name": "x", "size": 2}, {"name": "y", "kind": "b"}], "counts": {"n": 3}, "is_new": True}


def test_what_fits_becomes_what_it_says() -> None:
    expected = Whole((Part("x", size=2.0), Part("y", "b")), {"n": 3}, True)
    assert from_json(Whole, GOOD) == expected
    assert isinstance(from_json(Whole, GOOD).parts[0].size, float)
    assert from_json(tuple[int, str], [1, "a"]) == (1, "a")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"parts": {}}, "it.parts is {}; expected a list"),
        ({"parts": [{"name": 3}]}, r"it.parts\[0\].name is 3; expected a text"),
        ({"parts": [{"name": "x", "kind": "c"}]}, r"it.parts\[0\].kind is 'c'; expected one of 'a', 'b'"),
        ({"parts": [{"name": "x", "size": True}]}, "size is True; expected a number"),
        ({"parts": [{"name": "x", "colour": 1}]}, "has 'colour', which means nothing"),
        ({"parts": [{"kind": "a"}]}, "lacks 'name'"),
        ({"parts": ["x"]}, "is 'x'; expected an object"),
        ({"counts": {"n": 1.0}}, "it.counts.n is 1.0; expected a whole number"),
        ({"counts": {"n": True}}, "it.counts.n is True; expected a whole number"),
        ({"counts": []}, r"it.counts is \[\]; expected an object"),
        ({"is_new": 1}, "it.is_new is 1; expected true or false"),
        ({"is_new": None}, "it.is_new is None; expected true or false"),
        ({"title": 5}, "it.title is 5; expected a text"),
    ],
)
def test_what_does_not_is_refused_by_its_place(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_json(Whole, {**GOOD, **change})
