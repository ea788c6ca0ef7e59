"""A column of events (click, cart, purchase) guessed from its values, and which of its kinds are targets and history."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import polars as pl

from gmlfm.data.column_words import BOUGHT_KINDS, SEEN_KINDS, TAKEN_BACK_KINDS, words_of

_MOST_KINDS = 20


@dataclass(frozen=True)
class EventGuess:
    """A column of events. targets: kinds of having; history: those that count, None for all; reasons by key."""

    column: str
    targets: tuple[str, ...]
    history: tuple[str, ...] | None
    reasons: dict[str, str]


def guess_event(columns: Iterable[pl.Series]) -> EventGuess | None:
    """The first column whose values are kinds of events, a purchase and something else among them; None where none is."""
    for values in columns:
        if values.dtype != pl.String and not isinstance(values.dtype, (pl.Categorical, pl.Enum)):
            continue
        distinct = values.cast(pl.String).drop_nulls().unique()
        if not 2 <= len(distinct) <= _MOST_KINDS:
            continue
        kinds = sorted(distinct.to_list())
        words = {kind: _words(kind) for kind in kinds}
        taken_back = [kind for kind in kinds if words[kind] & TAKEN_BACK_KINDS]
        bought = [kind for kind in kinds if words[kind] & BOUGHT_KINDS and kind not in taken_back]
        seen = [kind for kind in kinds if words[kind] & SEEN_KINDS and kind not in taken_back]
        # Half of the kinds are known words: a column of shops or categories may have one of them by chance.
        if not bought or len(bought) == len(kinds) or 2 * len({*bought, *seen, *taken_back}) < len(kinds):
            continue
        history = tuple(kind for kind in kinds if kind not in taken_back) if taken_back else None
        reasons = {
            "event": f"kinds of events: {', '.join(kinds)}",
            "targets": "what is learned and recommended; the other kinds are history",
        }
        if history is not None:
            reasons["history_events"] = f"without what takes back: {', '.join(taken_back)}"
        return EventGuess(values.name, tuple(bought), history, reasons)
    return None


def _words(kind: str) -> set[str]:
    """add_to_cart -> add, to, cart and, as one word, addtocart."""
    return words_of(kind) | {re.sub(r"[\W_]+", "", kind.lower())}
