"""Why a score is what it is: the terms whose sum it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from gmlfm.escaping import terminal_text
from gmlfm.models.terms import EarlierTerms, Terms
from gmlfm.notebook import html_waterfall

# rows, x -> (part, field, value)
Names = Callable[[npt.NDArray[np.int64], npt.NDArray[np.float32]], Sequence[tuple[str, str, str]]]
ALIKE = "the same for everything"  # the global term
MOST_SHOWN = 12
_MOST_VALUES = 8  # of a field, that a label lists
Grouped = dict[tuple[str, ...], float]


@dataclass(frozen=True)
class Term:
    """kind: global, linear or pair. A pair's value is weight x distance x both x, where the model has a distance.

    earlier, role: the id of the earlier item that the first attribute is of, and the role of the history in which it stands.
    """

    kind: str
    fields: tuple[str, ...]
    attributes: tuple[str, ...]
    value: float
    weight: float | None = None
    distance: float | None = None
    earlier: Any = None
    role: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Without the earlier item and its role where it is of none."""
        return {name: value for name, value in asdict(self).items() if name not in ("earlier", "role") or self.role is not None}


@dataclass(frozen=True)
class EarlierNames:
    """attributes: of earlier items, by field and value; ids: of the items that they are of; titles: what people call an item,
    by id, where the data say."""

    attributes: Sequence[tuple[str, str]]
    ids: Sequence[Any]
    titles: Mapping[Any, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Explanation:
    """The terms sum to the score, but for rounding. titles: of the earlier items."""

    score: float
    terms: tuple[Term, ...]
    titles: Mapping[Any, str] = field(default_factory=dict)

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
            for name, attribute in zip(term.fields, term.attributes, strict=True):
                group.setdefault(name, {})[attribute.removeprefix(f"{name} = ")] = None
        return {fields: _label(fields, group) for fields, group in values.items()}

    def by_event(self) -> dict[Any, float]:
        """By id of an earlier item what it adds, all roles together; the weightiest first. Terms of the user and the item alone
        are in none."""
        sums: dict[Any, float] = {}
        for term in self.terms:
            if term.role is not None:
                sums[term.earlier] = sums.get(term.earlier, 0.0) + term.value
        return _weightiest_first(sums)

    def event_labels(self) -> dict[Any, str]:
        """In words each key of `by_event`: 'after Alien (last, recent, past)'."""
        roles: dict[Any, dict[str, None]] = {}
        for term in self.terms:
            if term.role is not None:
                roles.setdefault(term.earlier, {})[term.role] = None
        counts = Counter(self.titles.values())
        labels = {}
        for item, in_roles in roles.items():
            title = self.titles.get(item)
            called = item if title is None else title if counts[title] == 1 else f"{title} ({item})"
            labels[item] = f"after {called} ({', '.join(in_roles)})"
        return labels

    def steps(self, most: int = MOST_SHOWN) -> list[tuple[str, float]]:
        """The weightiest groups of terms with what they add, and the rest as one: they sum to the score.

        Of a user with a history the earlier items come first, the other terms behind them, and each has a rest of its own; then
        these are `most` in all.
        """
        events, event_labels = self.by_event(), self.event_labels()
        others = Explanation(self.score, tuple(term for term in self.terms if term.role is None))
        labels = others.labels()
        named = [(labels[fields], value) for fields, value in others.by_fields().items()]
        if not events:
            return first_and_rest(named, most, "")
        most = max(1, (most - 2) // 2)
        earlier = [(event_labels[item], value) for item, value in events.items()]
        return first_and_rest(earlier, most, " earlier item") + first_and_rest(named, most, "")

    def __str__(self) -> str:
        rows = [f"{value:+10.4f}  {terminal_text(label)}" for label, value in self.steps()]
        return "\n".join([*rows, f"{self.score:10.4f}  score"])

    def __repr__(self) -> str:
        most = [f", most {value:+.4f} of {terminal_text(label)}" for label, value in self.steps()[:1]]
        return f"<Explanation of the score {self.score:.4f}: {len(self.terms)} terms{''.join(most)}>"

    def _repr_html_(self) -> str:
        return html_waterfall(f"What the score {self.score:.4f} consists of", self.steps(), self.score)


def _label(fields: tuple[str, ...], values: dict[str, dict[str, None]]) -> str:
    texts = [f"{field} = {_listed(list(values[field]))}" for field in dict.fromkeys(fields)]
    return " x ".join(texts) + (" among themselves" if len(texts) < len(fields) else "") if texts else ALIKE


def _listed(values: list[str]) -> str:
    rest = len(values) - _MOST_VALUES
    return ", ".join(values) if rest <= 1 else f"{', '.join(values[:_MOST_VALUES])} and {rest} more"


def first_and_rest(named: list[tuple[str, float]], most: int, noun: str) -> list[tuple[str, float]]:
    """noun: what is counted in the rest, if not said by itself."""
    rest = named[most:]
    counted = f"{len(rest)} more{noun}{'s' if noun and len(rest) > 1 else ''}"
    return named[:most] + ([(counted, sum(value for _, value in rest))] if rest else [])


def explain(terms: Terms, names: Names, earlier_names: EarlierNames | None = None) -> Explanation:
    """The terms of a score by the names of their attributes. earlier_names: of the terms of earlier items."""
    fields, attributes = [], []
    for side, name, shown in names(terms.ids, terms.x):
        fields.append(field_label(side, name))
        attributes.append(f"{fields[-1]} = {shown}")
    n_terms, x, distances = len(terms.ids), terms.x, terms.distance
    named = [Term("global", (), (), terms.constant)]
    named += [Term("linear", (fields[i],), (attributes[i],), float(terms.linear[i])) for i in range(n_terms)]
    for i in range(n_terms):
        for j in range(i + 1, n_terms):
            weight, distance = float(terms.weight[i, j]), None if distances is None else float(distances[i, j])
            value = weight * (1.0 if distance is None else distance) * float(x[i]) * float(x[j])
            named.append(Term("pair", (fields[i], fields[j]), (attributes[i], attributes[j]), value, weight, distance))
    titles: Mapping[Any, str] = {}
    if terms.earlier is not None and earlier_names is not None:
        titles = earlier_names.titles
        named += _earlier_terms(terms.earlier, earlier_names, fields, attributes, x)
    return Explanation(sum(term.value for term in named), tuple(named), titles)


def _earlier_terms(
    earlier: EarlierTerms, names: EarlierNames, fields: list[str], attributes: list[str], x: npt.NDArray[np.float32]
) -> Iterator[Term]:
    """fields, attributes, x: of the user and the item that is scored, whose attributes come last."""
    n_scored = earlier.weight.shape[1]
    of_item = list(zip(fields[-n_scored:], attributes[-n_scored:], strict=True))
    values = _pair_values(earlier, x[-n_scored:])
    for number, ((name, shown), item, role) in enumerate(zip(names.attributes, names.ids, earlier.roles, strict=True)):
        label = field_label(role, name)
        attribute, linear = f"{label} = {shown}", float(earlier.linear[number])
        if linear != 0.0:  # many models have none
            yield Term("linear", (label,), (attribute,), linear, None, None, item, role)
        for j, (other, other_attribute) in enumerate(of_item):
            distance = None if earlier.distance is None else float(earlier.distance[number, j])
            pair, shown_pair, weight = (label, other), (attribute, other_attribute), float(earlier.weight[number, j])
            yield Term("pair", pair, shown_pair, float(values[number, j]), weight, distance, item, role)


def _pair_values(earlier: EarlierTerms, x: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """x: (J,), of the item that is scored -> (E, J)."""
    values: npt.NDArray[np.float64] = earlier.weight * np.outer(earlier.x.astype(np.float64), x.astype(np.float64))
    return values if earlier.distance is None else values * earlier.distance


def field_label(side: str, name: str) -> str:
    """As a term names a field: 'item.genre', and 'item' for its id."""
    return f"{side}.{name}" if name != side else side


def field_sums(terms: Terms, fields: Sequence[str], earlier_fields: Sequence[str] = ()) -> Grouped:
    """`Explanation.by_fields` of the same terms, without making every term: fields, earlier_fields: of each attribute."""
    x = terms.x.astype(np.float64)
    values = (terms.weight if terms.distance is None else terms.weight * terms.distance) * np.outer(x, x)
    parts = [
        _sums(terms.linear[:, None], fields, None, np.ones((len(x), 1), bool)),
        _sums(values, fields, fields, np.triu(np.ones(values.shape, bool), 1)),
    ]
    if terms.earlier is not None:
        linear, scored = terms.earlier.linear[:, None], fields[-terms.earlier.weight.shape[1] :]
        values = _pair_values(terms.earlier, terms.x[-len(scored) :])
        parts += [
            _sums(linear, earlier_fields, None, linear != 0.0),
            _sums(values, earlier_fields, scored, np.ones(values.shape, bool)),
        ]
    sums: Grouped = {(): terms.constant}
    for part in parts:
        for names, value in part:
            sums[names] = sums.get(names, 0.0) + value
    return _weightiest_first(sums)


def _sums(
    values: npt.NDArray[np.float64], rows: Sequence[str], columns: Sequence[str] | None, is_term: npt.NDArray[np.bool_]
) -> Iterator[tuple[tuple[str, ...], float]]:
    """The terms among (A, B) values added up by the names of their rows and, where given, of their columns."""
    (row_names, row_places), (column_names, column_places) = _places(rows), _places(columns or [""])
    places = (row_places[:, None] * len(column_names) + column_places)[is_term]
    counts = np.bincount(places, minlength=len(row_names) * len(column_names))
    sums = np.bincount(places, values[is_term], minlength=len(counts))
    for place in np.flatnonzero(counts):
        row, column = row_names[place // len(column_names)], column_names[place % len(column_names)]
        yield (row,) if columns is None else tuple(sorted((row, column))), float(sums[place])


def _places(names: Sequence[str]) -> tuple[list[str], npt.NDArray[np.int64]]:
    """The distinct names, and the place of each among them."""
    distinct = {name: place for place, name in enumerate(dict.fromkeys(names))}
    return list(distinct), np.array([distinct[name] for name in names], np.int64)


def contrast(sums: Mapping[tuple[str, ...], float], others: Sequence[Mapping[tuple[str, ...], float]]) -> Grouped:
    """By fields: how much more than the others' mean; the weightiest first."""
    keys = dict.fromkeys(key for by_fields in (sums, *others) for key in by_fields)
    return _weightiest_first(
        {key: sums.get(key, 0.0) - float(np.mean([by_fields.get(key, 0.0) for by_fields in others])) for key in keys}
    )


def _weightiest_first(sums: dict[Any, float]) -> dict[Any, float]:
    return dict(sorted(sums.items(), key=lambda entry: -abs(entry[1])))
