from __future__ import annotations

import importlib
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional

import pytest

from gmlfm import Recommender
from gmlfm.errors import OptionError
from gmlfm.models.settings import Choice, Declared, Real, Setting, convert_all, declared_settings, one_of

if TYPE_CHECKING:
    from nowhere import Unresolvable

Size = Literal["small", "large"]


def reader(
    count: Annotated[int, Setting("how many", least=1, most=10_000)] = 4,
    share: Annotated[float, Setting("of all", least=0, below=1)] = 0.5,
    flag: bool = True,
    name: Annotated[str, Setting("of a colour", check=one_of(("red", "blue")))] = "red",
    size: Annotated[Size, Setting("of the box")] = "small",
    threads: Annotated[int | None, Setting("of the processor", least=1)] = None,
    rate: Optional[float] = None,  # noqa: UP045 - the older spelling
) -> None: ...


DECLARED = declared_settings(reader)


@pytest.mark.parametrize(
    ("setting", "allowed", "refused", "text"),
    [
        (Setting("", least=1, most=10_000), [1, 10_000, 2.5], [0, 10_001, -1], "1 to 10,000"),
        (Setting("", least=0, below=1), [0, 0.999], [1, 1.0, -0.1], "0 or more, below 1"),
        (Setting("", above=0), [1e-9, 5], [0, 0.0, -3], "above 0"),
        (Setting("", most=3), [3, -100], [4], "at most 3"),
        (Setting("", least=2), [2, 1e9], [1], "2 or more"),
    ],
)
def test_a_range_allows_its_ends_or_leaves_them_out(
    setting: Setting, allowed: list[float], refused: list[float], text: str
) -> None:
    assert setting.range == text
    assert all(setting.allows(value) for value in allowed)
    assert not any(setting.allows(value) for value in [*refused, math.nan, math.inf, -math.inf])


def test_without_a_range_every_value_is_allowed_and_no_range_applies_to_words() -> None:
    assert Setting("").range == ""
    assert Setting("").allows(math.inf)
    assert Setting("", least=1).allows("text")
    assert Setting("", least=1).allows(False)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("count", "12", 12),
        ("count", 12, 12),
        ("count", 12.0, 12),
        ("share", "0.25", 0.25),
        ("share", 0, 0.0),
        ("share", "1e-3", 1e-3),
        ("flag", "no", False),
        ("flag", "TRUE", True),
        ("flag", "0", False),
        ("flag", 1, True),
        ("flag", False, False),
        ("name", "blue", "blue"),
        ("size", "large", "large"),
        ("threads", "2", 2),
        ("threads", "auto", None),
        ("threads", None, None),
        ("rate", "0.5", 0.5),
        ("rate", None, None),
    ],
)
def test_a_text_is_taken_as_the_settings_kind(name: str, value: Any, expected: Any) -> None:
    converted = DECLARED[name].convert(value)
    assert converted == expected
    assert type(converted) is type(expected)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("count", "0", "count is 0; expected 1 to 10,000."),
        ("count", "many", "count is 'many'; expected a whole number."),
        ("count", 2.5, "count is 2.5; expected a whole number."),
        ("count", "2.5", "count is '2.5'; expected a whole number."),
        ("count", True, "count is True; expected a whole number."),
        ("count", None, "count is None; expected a whole number."),
        ("count", math.inf, "count is inf; expected a whole number."),
        ("share", 1.0, "share is 1; expected 0 or more, below 1."),
        ("share", "nan", "share is nan; expected 0 or more, below 1."),
        ("share", "half", "share is 'half'; expected a number."),
        ("share", [0.5], "share is [0.5]; expected a text or a number."),
        ("flag", "maybe", "flag is 'maybe'; expected true or false."),
        ("name", "green", "name is 'green'; expected red, blue."),
        ("size", "smal", "size is 'smal'; did you mean 'small'?"),
        ("size", "xxl", "size is 'xxl'; known: small, large."),
        ("threads", 0, "threads is 0; expected 1 or more."),
    ],
)
def test_other_values_are_refused_in_a_sentence(name: str, value: Any, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        DECLARED[name].convert(value)
    assert str(caught.value) == message


def test_all_are_converted_by_name() -> None:
    assert convert_all(DECLARED, {"count": "3", "flag": "yes"}) == {"count": 3, "flag": True}


def test_what_is_declared_is_shown() -> None:
    assert list(DECLARED) == ["count", "share", "flag", "name", "size", "threads", "rate"]
    assert [declared.kind for declared in DECLARED.values()] == [int, float, bool, str, str, int, float]
    assert DECLARED["count"].setting.meaning == "how many"
    ranges = {name: declared.range for name, declared in DECLARED.items()}
    assert ranges == {
        "count": "1 to 10,000",
        "share": "0 or more, below 1",
        "flag": "true or false",
        "name": "",
        "size": "small, large",
        "threads": "auto or 1 or more",
        "rate": "auto",
    }
    assert DECLARED["threads"].is_optional
    assert not DECLARED["count"].is_optional


def test_arguments_that_are_left_out_or_collected_are_no_settings() -> None:
    def several(layout: Any, needed: int, *more: int, only_by_name: int = 3, **others: int) -> None: ...

    declared = declared_settings(several, leave_out=("layout",))
    assert list(declared) == ["needed", "only_by_name"]
    assert not declared["needed"].has_default
    assert declared["only_by_name"].has_default


def test_without_an_annotation_the_default_tells_the_kind() -> None:
    def plain(k=4, share=0.5, flag=False, name="red", nothing=None): ...  # type: ignore[no-untyped-def]

    kinds = {name: declared.kind for name, declared in declared_settings(plain).items()}
    assert kinds == {"k": int, "share": float, "flag": bool, "name": str, "nothing": str}


def test_an_annotation_that_cannot_be_resolved_hurts_no_other_and_its_first_word_or_default_tells() -> None:
    def partly(
        k: Annotated[int, Setting("factors", least=1)] = 4,
        share: float | Unresolvable = 0.5,
        text: str | Unresolvable = "a",
        size: Unresolvable = 7,
        other: Unresolvable.Inner = "b",
    ) -> None: ...

    declared = declared_settings(partly)
    assert {name: setting.kind for name, setting in declared.items()} == {
        "k": int,
        "share": float,
        "text": str,
        "size": int,
        "other": str,
    }
    with pytest.raises(OptionError, match="k is 0; expected 1 or more"):
        declared["k"].convert(0)


MODULE = """
{future}
from typing import Annotated

import torch

import gmlfm


class Plain(gmlfm.GradientModel):
    def __init__(self, k: int = 4, flag: bool = False, scale: "float" = 0.1, rows: Annotated[int, gmlfm.Setting("n", least=2)] = 2):
        super().__init__()
        self.values = (k, flag, scale, rows)

    row_width = 2

    def scores(self, rows, user_side, item_side):
        return (rows[item_side.ids].sum(-1) * item_side.x).sum(-1)
"""


@pytest.mark.parametrize("future", ["", "from __future__ import annotations"])
def test_settings_of_any_file_arrive_as_their_kinds(future: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With annotations as types and as texts alike."""
    name = f"plain_models_{len(future)}"
    (tmp_path / f"{name}.py").write_text(MODULE.format(future=future), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    model = importlib.import_module(name).Plain
    try:
        recommender = Recommender(model, k="8", flag="yes", scale="2", rows="3")
        built = recommender.settings.build()
    finally:
        sys.modules.pop(name)
    assert built.values == (8, True, 2.0, 3)
    assert [type(value) for value in built.values] == [int, bool, float, int]
    with pytest.raises(OptionError, match="rows is 1; expected 2 or more"):
        model(rows=1)
    with pytest.raises(OptionError, match="unknown setting 'kk'"):
        Recommender(model, kk=3)


@pytest.mark.parametrize(
    ("space", "inside", "outside", "at_border", "within"),
    [
        (Choice((8, 16, 64)), 16, 17, [8, 64], [16]),
        (Choice((0.0, 0.1, 0.5)), 0.1, 0.2, [0.5], [0.0, 0.1]),  # zero means none
        (Choice(("", "64")), "64", "32", [], ["", "64"]),
        (Choice((False, True)), True, "x", [], [False, True]),
        (Real(1e-4, 1e-2), 1e-3, 1.0, [1e-4, 1.1e-4, 1e-2], [1e-3, 2e-4]),
        (Real(0.0, 1.0, log=False), 0.5, -0.1, [0.0, 0.04, 0.97], [0.06, 0.5]),
    ],
)
def test_a_search_space_knows_its_values_and_its_borders(
    space: Choice | Real, inside: Any, outside: Any, at_border: list[Any], within: list[Any]
) -> None:
    assert space.contains(inside)
    assert not space.contains(outside)
    assert all(space.is_at_border(value) for value in at_border)
    assert not any(space.is_at_border(value) for value in within)


def test_a_declared_setting_is_frozen() -> None:
    assert isinstance(DECLARED["count"], Declared)
    with pytest.raises(AttributeError):
        DECLARED["count"].kind = float  # type: ignore[misc]
