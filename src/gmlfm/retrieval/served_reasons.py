"""Why a score is what it is, as a service tells it: sums of terms, of which it names no more than it was asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gmlfm.retrieval.explaining import MOST_SHOWN, Explanation, Term, first_and_rest


@dataclass(frozen=True)
class ServedExplanation(Explanation):
    """One term for each part; the labels are the service's. by_fields: without what earlier items add, which is by_event's."""

    parts: tuple[Mapping[str, Any], ...] = ()

    def by_fields(self) -> dict[tuple[str, ...], float]:
        return {tuple(sorted(part["fields"])): part["value"] for part in self.parts if part["kind"] == "fields"}

    def labels(self) -> dict[tuple[str, ...], str]:
        return {tuple(sorted(part["fields"])): part["label"] for part in self.parts if part["kind"] == "fields"}

    def event_labels(self) -> dict[Any, str]:
        return {part["item"]: part["label"] for part in self.parts if part["kind"] == "earlier"}

    def steps(self, most: int = MOST_SHOWN) -> list[tuple[str, float]]:
        """As an Explanation's: earlier items first, the other terms behind them, each with the rest of theirs as one."""
        earlier, others = _groups(self.parts)
        if not earlier:
            return first_and_rest(others, most, "")
        each = max(1, (most - 2) // 2)
        return first_and_rest(earlier, each, " earlier item") + first_and_rest(others, each, "")


def explanation_of(answer: Mapping[str, Any]) -> Explanation:
    """The answer of /explain."""
    parts = tuple(answer["parts"])
    titles = {part["item"]: part["title"] for part in parts if part["kind"] == "earlier" and part.get("title") is not None}
    return ServedExplanation(answer["score"], tuple(_term(part) for part in parts), titles, parts)


def _term(part: Mapping[str, Any]) -> Term:
    if part["kind"] == "earlier":
        return Term("pair", (), (part["label"],), part["value"], earlier=part["item"], role=", ".join(part["roles"]))
    fields = tuple(part.get("fields", ()))
    kind = "rest" if part["kind"] == "rest" else ("global", "linear", "pair")[min(len(fields), 2)]
    return Term(kind, fields if part["kind"] == "fields" else (part["label"],), (part["label"],), part["value"])


def _groups(parts: Sequence[Mapping[str, Any]]) -> list[list[tuple[str, float]]]:
    """The parts of earlier items and the others, each with their rest, which stands behind them."""
    groups: list[list[tuple[str, float]]] = [[], []]
    for part in parts:
        is_earlier = part["kind"] == "earlier" or (part["kind"] == "rest" and "earlier" in part["label"])
        groups[0 if is_earlier else 1].append((part["label"], part["value"]))
    return groups
