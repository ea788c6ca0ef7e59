from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gmlfm.retrieval.explaining import Explanation, Term, contrast, explain


class TwoParts:
    """A model whose pair of rows a, b adds (a0 b0) |a1 - b1|, or a0 b0 alone; no parameter is called bias."""

    def __init__(self, has_distance: bool = True) -> None:
        self._has_distance = has_distance

    def linear(self, rows: Tensor) -> Tensor:
        return rows[:, 0]

    def pair_parts(self, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor | None]:
        distance = (left[:, None, 1] - right[None, :, 1]).abs()
        return left[:, None, 0] * right[None, :, 0], distance if self._has_distance else None


ROWS = torch.tensor([[2.0, 1.0], [3.0, 5.0], [-1.0, 0.0]])
IDS, X = np.array([4, 7, 9]), np.array([1.0, 0.5, 1.0], np.float32)


def names(rows: npt.NDArray[np.int64]) -> list[tuple[str, str, str]]:
    assert rows.tolist() == IDS.tolist()
    return [("user", "user", "u1"), ("item", "price", "9.5"), ("item", "tags", "new")]


def explained(has_distance: bool = True, **options: Any) -> Explanation:
    model: Any = TwoParts(has_distance)
    return explain(model, ROWS, IDS, X, names, **options)


def test_terms_are_the_global_term_the_linear_ones_and_every_pair() -> None:
    terms = explained(constant=0.25).terms
    assert terms == (
        Term("global", (), (), 0.25),
        Term("linear", ("user",), ("user = u1",), 2.0),
        Term("linear", ("item.price",), ("item.price = 9.5",), 1.5),
        Term("linear", ("item.tags",), ("item.tags = new",), -1.0),
        Term("pair", ("user", "item.price"), ("user = u1", "item.price = 9.5"), 6.0 * 4.0 * 0.5, 6.0, 4.0),
        Term("pair", ("user", "item.tags"), ("user = u1", "item.tags = new"), -2.0, -2.0, 1.0),
        Term("pair", ("item.price", "item.tags"), ("item.price = 9.5", "item.tags = new"), -3.0 * 5.0 * 0.5, -3.0, 5.0),
    )
    assert explained(constant=0.25).score == 0.25 + 2.5 + 12.0 - 2.0 - 7.5


def test_a_model_without_a_distance_has_weights_alone() -> None:
    pairs = [term for term in explained(has_distance=False, constant=0.0).terms if term.kind == "pair"]
    assert [(term.value, term.weight, term.distance) for term in pairs] == [
        (3.0, 6.0, None),
        (-2.0, -2.0, None),
        (-1.5, -3.0, None),
    ]


def test_a_ratings_scale_applies_to_every_term() -> None:
    plain, scaled = explained(constant=0.5), explained(constant=0.5, label_scale=(3.0, 2.0))
    assert scaled.score == 3.0 + 2.0 * plain.score
    assert scaled.terms[0].value == 3.0 + 2.0 * 0.5


def test_the_shape_that_others_read() -> None:
    assert list(asdict(explained(constant=0.0))["terms"][0]) == ["kind", "fields", "attributes", "value", "weight", "distance"]


def test_fields_are_added_up_and_the_weightiest_comes_first() -> None:
    grouped = explained(constant=0.25).by_fields()
    assert list(grouped.items()) == [
        (("item.price", "user"), 12.0),
        (("item.price", "item.tags"), -7.5),
        (("user",), 2.0),
        (("item.tags", "user"), -2.0),
        (("item.price",), 1.5),
        (("item.tags",), -1.0),
        ((), 0.25),
    ]


def test_a_contrast_is_the_difference_from_the_others_mean() -> None:
    def of(**values: float) -> Explanation:
        terms = tuple(Term("linear", (field,), (field,), value) for field, value in values.items())
        return Explanation(sum(values.values()), terms)

    difference = contrast(of(a=1.0, b=2.0), [of(a=4.0), of(b=6.0, c=1.0)])
    assert list(difference.items()) == [(("b",), -1.0), (("a",), -1.0), (("c",), -0.5)]
