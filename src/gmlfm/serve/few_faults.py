"""Bodies that are wrong throughout: pydantic tells of every fault, in half a dozen ways, and a megabyte of them would hold up
all other requests for seconds. The first few are told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import FailFast, GetCoreSchemaHandler, ValidationError
from pydantic_core import CoreSchema, PydanticKnownError, core_schema

_MOST = 8


class _FirstFault(FailFast):
    """Of a list: what follows its first wrong member is not looked at."""

    __hash__ = object.__hash__  # members of a union are hashed


FIRST_FAULT = _FirstFault()


@dataclass(frozen=True)
class FewFaults:
    """Of a mapping, which cannot stop at the first: it has no more than so many names, and few of their faults are told."""

    most: int

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_wrap_validator_function(self._checked, handler(source))

    def _checked(self, values: Any, check: Callable[[Any], Any]) -> Any:
        few_names(values, self.most)
        try:
            return check(values)
        except ValidationError as error:
            if error.error_count() <= _MOST:
                raise
            raise ValidationError.from_exception_data(error.title, error.errors(include_url=False)[:_MOST]) from None  # type: ignore[arg-type]


def few_names(values: Any, most: int) -> Any:
    """The values themselves, unless they are a mapping with more names: of an object's unknown names each would be told."""
    if isinstance(values, dict) and len(values) > most:
        raise PydanticKnownError("too_long", {"field_type": "Object", "max_length": most, "actual_length": len(values)})
    return values
