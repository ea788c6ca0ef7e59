r"""GML-FM.

.. math:: \hat y(x) = w_0 + \sum_i w_i x_i + \sum_{i<j} w_{ij} D(v_i, v_j) x_i x_j, \quad w_{ij} = h^\top (v_i \odot v_j)

A row of the table is (w_i, v_i).
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from gmlfm.distances import Layers, Linear, Measure, Start, Transform, directions
from gmlfm.errors import OptionError
from gmlfm.kernels.second_order import (
    SideSums,
    across_vectors,
    by_pairs,
    pair_weights,
    pairs_are_cheaper,
    side_sums,
    squared_across,
    squared_factored,
)
from gmlfm.kernels.spec import KernelSpec, PairsSpec
from gmlfm.models.base import Attributes, PairwiseModel, SideScores
from gmlfm.models.layers import FactorModel, linear_term, take
from gmlfm.models.spaces import DROPOUT, FACTORS, SCALE, Choice

_NUMBERS_PER_PIECE = 16_000_000
_ROWS_PER_PIECE = 16_384
Form = Literal["auto", "pairs", "factored"]

SPACE = {"k": FACTORS, "layers": Choice((0, 1, 2, 3)), "dropout": DROPOUT, "unit": Choice((False, True)), "v_scale": SCALE}


class GMLFM(FactorModel, PairwiseModel):
    """Every pair of attributes has a weight and a distance.

    transform: identity, mahalanobis or dnn; distance: a Measure's name; weight=False sets every w_ij to 1."""

    def __init__(
        self,
        k: int = 64,
        transform: Literal["identity", "mahalanobis", "dnn"] = "dnn",
        layers: int = 1,
        activation: str = "tanh",
        dropout: float = 0.0,
        distance: str = "squared",
        p: float = 2.0,
        weight: bool = True,
        unit: bool = False,
        start: Start = "normal",
        h_start: Literal["normal", "half"] = "normal",
        v_scale: float = 0.01,
        form: Form = "auto",
    ) -> None:
        super().__init__(k, 1 + k, v_scale)
        if form not in ("auto", "pairs", "factored"):
            raise OptionError(f"form is '{form}'; expected auto, pairs or factored.")
        self.form = form
        self.measure = Measure(distance, p)
        self.decomposes = self.measure.decomposes and weight
        self.transform = _transform(transform, k, layers, activation, dropout, unit, start)
        self.bias = nn.Parameter(torch.zeros(()))
        self.h = nn.Parameter(_start_of_h(h_start, k)) if weight else None

    def transform_rows(self, rows: Tensor) -> Tensor:
        """(w, v, z): the transform runs once a row."""
        return torch.cat([rows, self.transform(rows[:, 1:])], dim=1)

    def forward(self, rows: Tensor, attributes: Attributes) -> Tensor:
        """Whole rows: attributes (..., F) -> (...)."""
        w, v, z = self._features(self.transform_rows(rows))
        return self.bias + linear_term(w, attributes) + self._within(v, z, attributes)

    def scores(self, rows: Tensor, user_side: Attributes, item_side: Attributes) -> Tensor:
        """By sides: what is within a user is computed once for all the items she is asked about."""
        w, v, z = self._features(rows)
        own_user = linear_term(w, user_side) + self._within(v, z, user_side)
        own_item = linear_term(w, item_side) + self._within(v, z, item_side)
        return self.bias + own_user.unsqueeze(-1) + own_item + self._across(v, z, user_side, item_side)

    def side_vectors(self, rows: Tensor, attributes: Attributes, *, is_user: bool) -> SideScores:
        _, v, z = self._features(rows)
        own = self.self_terms(rows, attributes, is_user=is_user)
        v_side, z_side = take(v, attributes), take(z, attributes)
        if self.measure.name == "cosine":
            # Without norms, the sum of x v z^T alone makes the inner product.
            p = (v_side * attributes.x.unsqueeze(-1)).transpose(-1, -2) @ directions(z_side)
            vector = (p * self._weight().unsqueeze(-1) if is_user else p).flatten(-2)
        else:
            vector = across_vectors(side_sums(v_side, z_side, attributes.x), self._weight(), is_user=is_user)
        return SideScores(own, vector)

    def kernel_spec(self) -> KernelSpec | None:
        """The squared distance and the cosine, by pairs, with weights and without dropout, have kernels."""
        measure, transform = self.measure.name, self.transform
        dropout = any(isinstance(module, nn.Dropout) for module in transform.modules())
        if self.h is None or measure not in ("squared", "cosine") or dropout or self.form == "factored":
            return None
        matrices, biases, activation = transform.packed()
        return PairsSpec(
            self.k,
            (self.bias, self.h, *matrices, *biases),
            n_layers=len(matrices),
            activation=activation,
            has_biases=bool(biases),
            unit=transform.unit or measure == "cosine",
            cosine=measure == "cosine",
        )

    @property
    def side_width(self) -> int:
        return self.k * self.k + 2 * self.k

    def self_terms(self, rows: Tensor, attributes: Attributes, *, is_user: bool) -> Tensor:
        w, v, z = self._features(rows)
        own = linear_term(w, attributes) + self._within(v, z, attributes)
        return own + self.bias if is_user else own

    def position(self, rows: Tensor, attributes: Attributes) -> Tensor:
        """The mean of the attributes' z, in which the distances are."""
        z = take(self._features(rows)[2], attributes) * attributes.x.abs().unsqueeze(-1)
        return z.sum(-2) / attributes.x.abs().sum(-1, keepdim=True).clamp_min(1e-12)

    def linear(self, rows: Tensor) -> Tensor:
        return rows[:, 0]

    def pair_parts(self, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor | None]:
        (_, v_left, z_left), (_, v_right, z_right) = self._features(left), self._features(right)
        distances = self._distances(z_left, z_right)
        if self.h is None:
            return torch.ones_like(distances), distances
        return pair_weights(v_left, v_right, self.h), distances

    def item_cache(self, table: Tensor) -> tuple[Tensor, ...]:
        """v, a view of the table, and z, lengthened where that makes the distance an inner product."""
        v = table[:, 1:]
        z: Tensor | None = None
        for at in range(0, len(v), _ROWS_PER_PIECE):
            piece = self.transform(v[at : at + _ROWS_PER_PIECE])
            piece = self.measure.factor(piece, left=False) if self.measure.decomposes else piece
            z = piece.new_empty(len(v), piece.shape[1]) if z is None else z
            z[at : at + len(piece)] = piece
        return v, v if z is None else z

    def pair_table(self, left: Tensor, kept: tuple[Tensor, ...]) -> Tensor:
        _, v_left, z_left = self._features(left)
        v, z = kept
        # Items first: a tall matrix times a narrow one runs in half the time of the wide product.
        if self.measure.decomposes:
            table = z @ self.measure.factor(z_left, left=True).T
        else:
            table = self._distances(z, z_left)
        return (table if self.h is None else table.mul_(v @ (v_left * self.h).T)).T

    def _distances(self, left: Tensor, right: Tensor) -> Tensor:
        """(A, K), (B, K) -> (A, B). Those without an inner-product form hold (A, B, K) numbers at a time: they go in pieces."""
        step = max(1, len(left) if self.measure.decomposes else _NUMBERS_PER_PIECE // (len(right) * self.k))
        return torch.cat([self.measure(left[at : at + step], right) for at in range(0, len(left), step)])

    def _features(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Linear weights, factors and transformed factors."""
        return rows[:, :1], rows[:, 1 : 1 + self.k], rows[:, 1 + self.k :]

    def _within(self, v: Tensor, z: Tensor, attributes: Attributes) -> Tensor:
        """Pairs of one side's own attributes."""
        if attributes.ids.shape[-1] < 2:
            return attributes.x.new_zeros(attributes.ids.shape[:-1])
        v_side, z_side, x = take(v, attributes), take(z, attributes), attributes.x
        if self._factored(attributes.ids.shape[-1]):
            return squared_factored(v_side, z_side, x, self._weight())
        return by_pairs(self._weights(v_side, x, v_side, x), self.measure(z_side, z_side))

    def _across(self, v: Tensor, z: Tensor, user_side: Attributes, item_side: Attributes) -> Tensor:
        """Pairs with one attribute on each side: (B, F), (B, G, F') -> (B, G)."""
        v_user, z_user, v_item, z_item = take(v, user_side), take(z, user_side), take(v, item_side), take(z, item_side)
        if self._factored(user_side.ids.shape[-1] + item_side.ids.shape[-1]):
            user = SideSums(*(one.unsqueeze(1) for one in side_sums(v_user, z_user, user_side.x)))
            return squared_across(user, side_sums(v_item, z_item, item_side.x), self._weight())
        weights = self._weights(v_user, user_side.x, v_item.flatten(1, 2), item_side.x.flatten(1, 2))
        products = weights * self.measure(z_user, z_item.flatten(1, 2))
        return products.sum(1).view(item_side.ids.shape).sum(-1)

    def _weights(self, left: Tensor, left_x: Tensor, right: Tensor, right_x: Tensor) -> Tensor:
        """w_ij x_i x_j."""
        if self.h is None:
            return left_x.unsqueeze(-1) * right_x.unsqueeze(-2)
        return pair_weights(left * left_x.unsqueeze(-1), right * right_x.unsqueeze(-1), self.h)

    def _weight(self) -> Tensor:
        assert self.h is not None
        return self.h

    def _factored(self, n_attributes: int) -> bool:
        if self.measure.name != "squared" or self.h is None or self.form == "pairs":
            return False
        return self.form == "factored" or not pairs_are_cheaper(n_attributes, self.k)


def _transform(kind: str, k: int, layers: int, activation: str, dropout: float, unit: bool, start: Start) -> Transform:
    if kind == "identity":
        return Transform(unit)
    if kind == "mahalanobis":
        return Linear(k, unit, start)
    if kind == "dnn":
        return Layers(k, layers, activation, dropout, unit, start)
    raise OptionError(f"transform is '{kind}'; expected identity, mahalanobis or dnn.")


def _start_of_h(kind: str, k: int) -> Tensor:
    if kind == "half":
        return torch.full((k,), 0.5)
    if kind == "normal":
        return torch.empty(k).normal_(0.0, 0.01)
    raise OptionError(f"h_start is '{kind}'; expected normal or half.")
