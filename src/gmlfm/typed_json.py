"""JSON read as what a type says: every value is checked, so that an edited file is refused where it is read."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints


def from_json(hint: Any, value: Any, where: str = "it") -> Any:
    """The value as a text, number, Literal, tuple, mapping or dataclass; what it is not raises ValueError with its place."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if origin is Literal:
        if not any(value == choice and type(value) is type(choice) for choice in arguments):
            raise ValueError(f"{where} is {value!r:.60}; expected one of {', '.join(map(repr, arguments))}")
        return value
    if origin in (Union, types.UnionType):
        return _one_of(arguments, value, where)
    if origin is tuple:
        return _sequence(arguments, value, where)
    if origin in (dict, Mapping):
        _need(isinstance(value, dict), "an object", value, where)
        return {key: from_json(arguments[1], element, f"{where}.{key}") for key, element in value.items()}
    if is_dataclass(hint):
        return _object(hint, value, where)
    if hint is float:
        _need(isinstance(value, int | float) and not isinstance(value, bool), "a number", value, where)
        return float(value)
    _need(type(value) is hint, {str: "a text", int: "a whole number", bool: "true or false"}.get(hint, "null"), value, where)
    return value


def _one_of(hints: tuple[Any, ...], value: Any, where: str) -> Any:
    if value is None and type(None) in hints:
        return None
    problem = ValueError(f"{where} is null")
    for hint in hints:
        if hint is not type(None):
            try:
                return from_json(hint, value, where)
            except ValueError as error:
                problem = error
    raise problem


def _sequence(arguments: tuple[Any, ...], value: Any, where: str) -> tuple[Any, ...]:
    _need(isinstance(value, list | tuple), "a list", value, where)
    if arguments[-1] is ...:
        arguments = arguments[:1] * len(value)
    _need(len(value) == len(arguments), f"a list of {len(arguments)}", value, where)
    places = [f"{where}[{number}]" for number in range(len(value))]
    return tuple(map(from_json, arguments, value, places))


def _object(hint: Any, value: Any, where: str) -> Any:
    _need(isinstance(value, dict), "an object", value, where)
    hints = get_type_hints(hint)
    declared = {field.name: field for field in fields(hint) if field.init}
    for name in value:
        if name not in declared:
            raise ValueError(f"{where} has '{name:.60}', which means nothing")
    for name, field in declared.items():
        if name not in value and field.default is MISSING and field.default_factory is MISSING:
            raise ValueError(f"{where} lacks '{name}'")
    return hint(**{name: from_json(hints[name], element, f"{where}.{name}") for name, element in value.items()})


def _need(is_so: bool, expected: str, value: Any, where: str) -> None:
    if not is_so:
        raise ValueError(f"{where} is {value!r:.60}; expected {expected}")
