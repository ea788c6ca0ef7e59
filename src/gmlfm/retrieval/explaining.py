"""Why a score is what it is: the exact sum it consists of, term by term."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gmlfm.models.base import PairwiseModel

Names = Callable[[npt.NDArray[np.int64]], Sequence[tuple[str, str, str]]]  # rows -> (part, field, value)


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
        found: dict[tuple[str, ...], float] = {}
        for one in self.terms:
            key = tuple(sorted(one.fields))
            found[key] = found.get(key, 0.0) + one.value
        return dict(sorted(found.items(), key=lambda one: -abs(one[1])))


def explain(
    model: PairwiseModel,
    rows: Tensor,
    ids: npt.NDArray[np.int64],
    x: npt.NDArray[np.float32],
    names: Names,
    label_scale: tuple[float, float] = (0.0, 1.0),
) -> Explanation:
    """ids, x: the attributes of one whole row, user first, without padding; rows: theirs, made ready."""
    centre, spread = label_scale
    with torch.no_grad():
        linear = (model.linear(rows).cpu().double().numpy()) * x
        weight, distance = (None if one is None else one.cpu().double().numpy() for one in model.pair_parts(rows, rows))
    assert weight is not None
    told = [(f"{part}.{name}" if name != part else part, value) for part, name, value in names(ids)]
    bias = getattr(model, "bias", None)
    constant = float(bias.detach()) if isinstance(bias, Tensor) else 0.0
    terms = [Term("global", (), (), centre + spread * constant)]
    terms += [Term("linear", (told[i][0],), (_shown(told[i]),), spread * float(linear[i])) for i in range(len(ids))]
    for i in range(len(ids)):
        for j in range(i + 1, len(ids)):
            far = None if distance is None else float(distance[i, j])
            value = spread * float(weight[i, j]) * (1.0 if far is None else far) * float(x[i]) * float(x[j])
            fields, attributes = (told[i][0], told[j][0]), (_shown(told[i]), _shown(told[j]))
            terms.append(Term("pair", fields, attributes, value, float(weight[i, j]), far))
    return Explanation(sum(one.value for one in terms), tuple(terms))


def contrast(one: Explanation, others: Sequence[Explanation]) -> dict[tuple[str, ...], float]:
    """By fields: how much more than the others' mean; the weightiest first."""
    own = one.by_fields()
    theirs = [other.by_fields() for other in others]
    keys = {key for found in (own, *theirs) for key in found}
    apart = {key: own.get(key, 0.0) - float(np.mean([found.get(key, 0.0) for found in theirs])) for key in keys}
    return dict(sorted(apart.items(), key=lambda found: -abs(found[1])))


def _shown(told: tuple[str, str]) -> str:
    name, value = told
    return f"{name} = {value}"
