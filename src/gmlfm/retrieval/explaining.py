"""Why a score is what it is: the terms whose sum it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gmlfm.escaping import terminal_text
from gmlfm.models.base import Terms
from gmlfm.notebook import html_waterfall

# rows, x -> (part, field, value)
Names = Callable[[npt.NDArray[np.int64], npt.NDArray[np.float32]], Sequence[tuple[str, str, str]]]
ALIKE = "the same for everything"  # the global term
_MOST_SHOWN = 12


@dataclass(frozen=True)
class Term:
    """kind: global, linear or pair. A pair's value is weight x distance x both x, where the model has a distance."""

    kind: str
    fields: tuple[str, ...]
    attributes: tuple[str, ...]
    value: float
    weight: float | None = None
    distance: float | None = None


@dataclass(frozen=True)
class Explanation:
    """The terms sum to the score, but for rounding."""

    score: float
    terms: tuple[Term, ...]

    def by_fields(self) -> dict[tuple[str, ...], float]:
        """Terms of the same fields added up, the weightiest first; a pair's fields in their order of name."""
        sums: dict[tuple[str, ...], float] = {}
        for term in self.terms:
            fields = tuple(sorted(term.fields))
            sums[fields] = sums.get(fields, 0.0) + term.value
        return _weightiest_first(sums)

    def labels(self) -> dict[tuple[str, ...], str]:
        """In words each key of `by_fields`: 'item.genre = Festival x user.age = 20-29'; members of a set are listed."""
        values: dict[tuple[str, ...], dict[str, dict[str, None]]] = {}
        for term in self.terms:
            group = values.setdefault(tuple(sorted(term.fields)), {})
            for field, attribute in zip(term.fields, term.attributes, strict=True):
                group.setdefault(field, {})[attribute.removeprefix(f"{field} = ")] = None
        return {fields: _label(fields, group) for fields, group in values.items()}

    def steps(self) -> list[tuple[str, float]]:
        """The weightiest groups of terms with what they add, and the rest as one: they sum to the score."""
        labels = self.labels()
        named = [(labels[fields], value) for fields, value in self.by_fields().items()]
        rest = named[_MOST_SHOWN:]
        return named[:_MOST_SHOWN] + ([(f"{len(rest)} more", sum(value for _, value in rest))] if rest else [])

    def __str__(self) -> str:
        rows = [f"{value:+10.4f}  {terminal_text(label)}" for label, value in self.steps()]
        return "\n".join([*rows, f"{self.score:10.4f}  score"])

    def __repr__(self) -> str:
        most = [f", most {value:+.4f} of {terminal_text(label)}" for label, value in self.steps()[:1]]
        return f"<Explanation of the score {self.score:.4f}: {len(self.terms)} terms{''.join(most)}>"

    def _repr_html_(self) -> str:
        return html_waterfall(f"What the score {self.score:.4f} consists of", self.steps(), self.score)


def _label(fields: tuple[str, ...], values: dict[str, dict[str, None]]) -> str:
    texts = [f"{field} = {', '.join(values[field])}" for field in dict.fromkeys(fields)]
    return " x ".join(texts) + (" among themselves" if len(texts) < len(fields) else "") if texts else ALIKE


def explain(terms: Terms, names: Names) -> Explanation:
    """The terms of a score by the names of their attributes."""
    fields, attributes = [], []
    for side, field, shown in names(terms.ids, terms.x):
        fields.append(f"{side}.{field}" if field != side else side)
        attributes.append(f"{fields[-1]} = {shown}")
    n_terms, x, distances = len(terms.ids), terms.x, terms.distance
    named = [Term("global", (), (), terms.constant)]
    named += [Term("linear", (fields[i],), (attributes[i],), float(terms.linear[i])) for i in range(n_terms)]
    for i in range(n_terms):
        for j in range(i + 1, n_terms):
            weight, distance = float(terms.weight[i, j]), None if distances is None else float(distances[i, j])
            value = weight * (1.0 if distance is None else distance) * float(x[i]) * float(x[j])
            named.append(Term("pair", (fields[i], fields[j]), (attributes[i], attributes[j]), value, weight, distance))
    return Explanation(sum(term.value for term in named), tuple(named))


def contrast(explanation: Explanation, others: Sequence[Explanation]) -> dict[tuple[str, ...], float]:
    """By fields: how much more than the others' mean; the weightiest first."""
    sums = explanation.by_fields()
    other_sums = [other.by_fields() for other in others]
    keys = dict.fromkeys(key for by_fields in (sums, *other_sums) for key in by_fields)
    return _weightiest_first(
        {key: sums.get(key, 0.0) - float(np.mean([by_fields.get(key, 0.0) for by_fields in other_sums])) for key in keys}
    )


def _weightiest_first(sums: dict[tuple[str, ...], float]) -> dict[tuple[str, ...], float]:
    return dict(sorted(sums.items(), key=lambda entry: -abs(entry[1])))
