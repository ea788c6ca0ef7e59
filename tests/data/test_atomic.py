from __future__ import annotations

import pytest

from gmlfm.data.atomic import atomic_types


def test_types_are_read_from_the_names() -> None:
    assert atomic_types(["user_id:token", "genre:token_seq", "rating:float", "v:float_seq"]) == {
        "user_id": "token",
        "genre": "token_seq",
        "rating": "float",
        "v": "float_seq",
    }
    assert atomic_types(["a:b:token"]) == {"a:b": "token"}


@pytest.mark.parametrize("names", [[], ["user_id"], ["user_id:token", "rating"], [":token"], ["a:int"], ["a:token", "a:float"]])
def test_other_names_have_none(names: list[str]) -> None:
    assert atomic_types(names) is None
