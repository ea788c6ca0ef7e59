"""RecBole's atomic files, whose columns carry their types in their names, as in `user_id:token` and `genre:token_seq`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, get_args

AtomicType = Literal["token", "token_seq", "float", "float_seq"]
ROLES_OF_SUFFIXES: Mapping[str, str] = {".inter": "interactions", ".user": "users", ".item": "items"}


def atomic_types(names: Sequence[str]) -> dict[str, AtomicType] | None:
    """Each column's type by its name without it, in their order; None where not every name carries a type."""
    types: dict[str, AtomicType] = {}
    for name in names:
        bare, _, suffix = name.strip().rpartition(":")
        if not bare or suffix not in get_args(AtomicType):
            return None
        types[bare] = suffix  # type: ignore[assignment]
    return types if types and len(types) == len(names) else None
