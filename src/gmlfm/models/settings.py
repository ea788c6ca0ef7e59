"""What a setting is: its meaning, its range and what tuning may try, declared once, in the signature of whoever reads it.

    def __init__(self, k: Annotated[int, Setting("factors of each attribute", least=1)] = 64) -> None: ...

Checks, `gmlfm settings`, `--help`, tuning and the docs all read that declaration.
"""

from __future__ import annotations

import inspect
import math
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from gmlfm.arguments import shown
from gmlfm.errors import OptionError, did_you_mean

_NO_DEFAULT = inspect.Parameter.empty
_WORDS = {"true": True, "false": False, "yes": True, "no": False, "1": True, "0": False}


@dataclass(frozen=True)
class Choice:
    """A search space of listed values."""

    values: tuple[Any, ...]

    def is_at_border(self, value: Any) -> bool:
        """A set of names has no border; the least and the largest of numbers are one, but for zero, which means 'none'."""
        if not all(isinstance(choice, (int, float)) and not isinstance(choice, bool) for choice in self.values):
            return False
        return value in (min(self.values), max(self.values)) and value != 0

    def contains(self, value: Any) -> bool:
        return value in self.values


@dataclass(frozen=True)
class Real:
    """A search space of numbers from low to high, even on a logarithmic scale unless log=False."""

    low: float
    high: float
    log: bool = True

    def is_at_border(self, value: Any) -> bool:
        """Within a twentieth of the range of one of its ends."""
        scale = math.log if self.log else float
        position = (scale(value) - scale(self.low)) / (scale(self.high) - scale(self.low))
        return not 0.05 < position < 0.95

    def contains(self, value: Any) -> bool:
        return bool(self.low <= value <= self.high)


Space = Choice | Real


@dataclass(frozen=True)
class Setting:
    """meaning: one line. least, most: allowed themselves; above, below: not. search: what `gmlfm tune` tries. words: texts
    that stand for a number of their own."""

    meaning: str
    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None
    search: Space | None = None
    check: Callable[[Any], str | None] | None = None  # for values no range can say: what was expected, or None
    words: Mapping[str, int] = field(default_factory=dict)

    @property
    def range(self) -> str:
        """The range in words; '' where every value is allowed."""
        if self.least is not None and self.most is not None:
            return f"{_limit(self.least)} to {_limit(self.most)}"
        limits = {"{} or more": self.least, "above {}": self.above, "at most {}": self.most, "below {}": self.below}
        return ", ".join(text.format(_limit(limit)) for text, limit in limits.items() if limit is not None)

    def allows(self, value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return True
        if value in self.words.values():
            return True
        limits = (self.least, self.most, self.above, self.below)
        if all(limit is None for limit in limits):
            return True
        return (
            math.isfinite(value)
            and (self.least is None or value >= self.least)
            and (self.most is None or value <= self.most)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )


@dataclass(frozen=True)
class Declared:
    """One setting as its reader declares it. kind: int, float, bool or str; choices: the texts a Literal allows."""

    name: str
    kind: type
    default: Any
    is_optional: bool
    choices: tuple[str, ...]
    setting: Setting

    @property
    def has_default(self) -> bool:
        return self.default is not _NO_DEFAULT

    @property
    def range(self) -> str:
        if self.choices:
            return ", ".join(self.choices)
        if self.kind is bool:
            return "true or false"
        auto = "auto" if self.is_optional else ""
        return " or ".join(text for text in (auto, *self.setting.words, self.setting.range) if text)

    def convert(self, value: Any) -> Any:
        """A text as the setting's kind; anything else must be of that kind already. Checked against the range."""
        converted = self._converted(value)
        if converted is None:
            return None
        if self.choices and converted not in self.choices:
            raise OptionError(f"{self.name} is '{converted}'{did_you_mean(str(converted), self.choices)}")
        if not self.setting.allows(converted):
            raise OptionError(f"{self.name} is {_shown(converted)}; expected {self.setting.range}.")
        expected = self.setting.check(converted) if self.setting.check else None
        if expected:
            raise OptionError(f"{self.name} is {_shown(converted)}; expected {expected}.")
        return converted

    def _converted(self, value: Any) -> Any:
        if not (value is None or isinstance(value, str | int | float | np.generic)):
            raise OptionError(f"{self.name} is {shown(value)}; expected a text or a number.")
        if self.is_optional and (value is None or value == "auto"):
            return None
        if isinstance(value, str) and value in self.setting.words:
            return self.setting.words[value]
        if self.kind is bool:
            if isinstance(value, bool):
                return value
            if str(value).lower() in _WORDS:
                return _WORDS[str(value).lower()]
            raise OptionError(f"{self.name} is {value!r}; expected true or false.")
        if self.kind is str:
            return str(value)
        expected = "a whole number" if self.kind is int else "a number"
        if isinstance(value, bool):
            raise OptionError(f"{self.name} is {value!r}; expected {expected}.")
        try:
            converted = self.kind(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise OptionError(f"{self.name} is {value!r}; expected {expected}.") from error
        if self.kind is int and isinstance(value, float) and converted != value:
            raise OptionError(f"{self.name} is {value!r}; expected {expected}.")
        return converted


def declared_settings(reader: Callable[..., Any], leave_out: tuple[str, ...] = ()) -> dict[str, Declared]:
    """The settings of a class, by the signature of its __init__ (a dataclass's fields included)."""
    function = reader.__init__ if isinstance(reader, type) else reader  # type: ignore[misc]
    parameters = [
        parameter
        for parameter in inspect.signature(reader).parameters.values()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY) and parameter.name not in leave_out
    ]
    names = getattr(function, "__globals__", {})
    return {parameter.name: _declared(parameter, _resolved(parameter.annotation, names)) for parameter in parameters}


def one_of(names: Iterable[str]) -> Callable[[Any], str | None]:
    """A check that a text is one of some names."""
    listed = tuple(names)
    return lambda value: None if value in listed else ", ".join(listed)


def convert_all(declared: Mapping[str, Declared], values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: declared[name].convert(value) for name, value in values.items()}


def _resolved(annotation: Any, names: dict[str, Any]) -> Any:
    """The type that an annotation written as a text means; the text where it names what only a type checker sees."""
    holder = types.SimpleNamespace(__annotations__={"annotation": annotation})
    try:
        return get_type_hints(holder, globalns=names, include_extras=True)["annotation"]
    except (NameError, TypeError, AttributeError, SyntaxError):
        return annotation


def _declared(parameter: inspect.Parameter, annotation: Any) -> Declared:
    setting = Setting("")
    if get_origin(annotation) is Annotated:
        annotation, *extras = get_args(annotation)
        setting = next((extra for extra in extras if isinstance(extra, Setting)), setting)
    members = [annotation]
    if get_origin(annotation) in (Union, types.UnionType):
        members = list(get_args(annotation))
    is_optional = type(None) in members or parameter.default is None
    kind = next((member for member in members if member is not type(None)), str)
    if get_origin(kind) is Literal:
        return Declared(parameter.name, str, parameter.default, is_optional, tuple(get_args(kind)), setting)
    if isinstance(kind, str):
        first_word = kind.split("|")[0].strip().split(".")[-1]
        kind = {"int": int, "float": float, "bool": bool, "str": str}.get(first_word, _NO_DEFAULT)
    if kind not in (int, float, bool):
        # Without an annotation, or with one that cannot be resolved, the default tells.
        kind = type(parameter.default) if type(parameter.default) in (int, float, bool) and kind is _NO_DEFAULT else str
    return Declared(parameter.name, kind, parameter.default, is_optional, (), setting)


def _limit(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else f"'{value}'" if isinstance(value, str) else f"{value}"


# Settings that several models share.
BEFORE: Final = "before"
TRAINING: Final = "training"
UserRows = Annotated[
    Literal["before", "training"],
    Setting("which of a user's rows count when scoring: those before the scored row, or the training rows as a set"),
]
Factors = Annotated[int, Setting("factors of each attribute", least=1, most=10_000, search=Choice((8, 16, 32, 64, 128)))]
Scale = Annotated[
    float, Setting("standard deviation of the factors at the start of training", least=0, search=Choice((0.01, 0.1)))
]
Dropout = Annotated[
    float, Setting("share of numbers left out of a step", least=0, below=1, search=Choice((0.0, 0.1, 0.2, 0.3, 0.5)))
]
