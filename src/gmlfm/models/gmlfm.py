r"""GML-FM.

.. math:: \hat y(x) = w_0 + \sum_i w_i x_i + \sum_{i<j} w_{ij} D(v_i, v_j) x_i x_j, \quad w_{ij} = h^\top (v_i \odot v_j)

A row of the table is (w_i, v_i).
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from torch import Tensor, nn

from gmlfm.distances import ACTIVATIONS, MEASURES, Layers, Linear, Measure, Start, Transform, directions
from gmlfm.errors import NotSupportedError
from gmlfm.kernels.second_order import (
    SideSums,
    across_vectors,
    by_pairs,
    moved,
    pair_weights,
    pairs_are_cheaper,
    side_sums,
    squared_across,
    squared_factored,
)
from gmlfm.kernels.spec import KernelSpec, PairsSpec
from gmlfm.models.gradient import Attributes
from gmlfm.models.layers import FactorModel, linear_term, take
from gmlfm.models.pairwise import PairwiseModel, SideVectors
from gmlfm.models.settings import Choice, Dropout, Factors, Scale, Setting, one_of

_NUMBERS_PER_BLOCK = 16_000_000
_ROWS_PER_BLOCK = 16_384
Kind = Literal["identity", "mahalanobis", "dnn"]
StartOfH = Literal["normal", "half"]
Form = Literal["auto", "pairs", "factored"]
_LAYERS = Setting("layers of the dnn transform", least=0, most=3, search=Choice((0, 1, 2, 3)))
_UNIT = Setting("whether transformed factors are scaled to unit length", search=Choice((False, True)))


class GMLFM(FactorModel, PairwiseModel):
    """Every pair of attributes has a weight and a distance."""

    def __init__(
        self,
        k: Factors = 64,
        transform: Annotated[Kind, Setting("what makes z of the factors v")] = "dnn",
        layers: Annotated[int, _LAYERS] = 1,
        activation: Annotated[str, Setting("after each layer of the dnn transform", check=one_of(ACTIVATIONS))] = "tanh",
        dropout: Dropout = 0.0,
        distance: Annotated[str, Setting("of two transformed attributes", check=one_of(MEASURES))] = "squared",
        p: Annotated[float, Setting("power of the Minkowski distance", least=1)] = 2.0,
        weight: Annotated[bool, Setting("whether a pair has the weight h.(v_i * v_j); otherwise 1")] = True,
        unit: Annotated[bool, _UNIT] = False,
        start: Annotated[Start, Setting("how the transform's matrices start")] = "normal",
        h_start: Annotated[StartOfH, Setting("how h starts: normal of .01, or a half, by which the sum is FM's")] = "normal",
        v_scale: Scale = 0.01,
        form: Annotated[Form, Setting("how pairs are summed in training; auto takes the cheaper one")] = "auto",
    ) -> None:
        super().__init__(k, 1 + k, v_scale)
        self.form = form
        self.measure = Measure(distance, p)
        self.decomposes = self.measure.decomposes and weight
        self.points = slice(1 + k, 1 + 2 * k) if distance == "squared" else None
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
        """By sides: what is within a user is computed once for all of their items."""
        w, v, z = self._features(rows)
        user_terms = linear_term(w, user_side) + self._within(v, z, user_side)
        item_terms = linear_term(w, item_side) + self._within(v, z, item_side)
        return self.bias + user_terms.unsqueeze(-1) + item_terms + self._across(v, z, user_side, item_side)

    def side_vectors(self, rows: Tensor, attributes: Attributes, *, is_user: bool) -> SideVectors:
        _, v, z = self._features(rows)
        self_terms = self.self_terms(rows, attributes, is_user=is_user)
        v_side, z_side = take(v, attributes), take(z, attributes)
        if self.measure.name == "cosine":
            # Without norms, the sum of x v z^T alone makes the inner product.
            p = (v_side * attributes.x.unsqueeze(-1)).transpose(-1, -2) @ directions(z_side)
            vector = (p * self._weight().unsqueeze(-1) if is_user else p).flatten(-2)
        else:
            vector = across_vectors(side_sums(v_side, z_side, attributes.x), self._weight(), is_user=is_user)
        return SideVectors(self_terms, vector)

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
        self_terms = linear_term(w, attributes) + self._within(v, z, attributes)
        return self_terms + self.bias if is_user else self_terms

    def position(self, rows: Tensor, attributes: Attributes) -> Tensor:
        """The mean of the attributes' z, in which the distances are."""
        z = take(self._features(rows)[2], attributes) * attributes.x.abs().unsqueeze(-1)
        return z.sum(-2) / attributes.x.abs().sum(-1, keepdim=True).clamp_min(1e-12)

    def metric(self) -> tuple[Tensor, Tensor]:
        if not isinstance(self.transform, Linear):
            raise NotSupportedError("only a Mahalanobis distance has a matrix M; gml-fm-md has one, and gml-fm with a rank.")
        with torch.no_grad():
            return self.transform.metric(), self.table[:, 1:]

    def global_term(self) -> Tensor:
        return self.bias

    def linear(self, rows: Tensor) -> Tensor:
        return rows[:, 0]

    def pair_parts(self, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor | None]:
        (_, v_left, z_left), (_, v_right, z_right) = self._features(left), self._features(right)
        distances = self._distances(z_left, z_right)
        if self.h is None:
            return torch.ones_like(distances), distances
        return pair_weights(v_left, v_right, self.h), distances

    def item_cache(self, table: Tensor) -> tuple[Tensor, ...]:
        """v, a view of the table; z, lengthened where that makes the distance an inner product; and z's origin, a row seen B
        times."""
        v = table[:, 1:]
        z, origin = v, v.new_zeros(1, self.k)
        for start in range(0, len(v), _ROWS_PER_BLOCK):
            block = self.transform(v[start : start + _ROWS_PER_BLOCK])
            if start == 0 and self.measure.name == "squared":
                origin = block.mean(0, keepdim=True)
            block = block - origin
            block = self.measure.factor(block, left=False) if self.measure.decomposes else block
            z = block.new_empty(len(v), block.shape[1]) if start == 0 else z
            z[start : start + len(block)] = block
        return v, z, origin.expand(len(v), -1)

    def pair_table(self, left: Tensor, item_cache: tuple[Tensor, ...]) -> Tensor:
        _, v_left, z_left = self._features(left)
        v, z, origin = item_cache
        z_left = z_left - origin[:1]
        # Items first: a tall matrix times a narrow one runs in half the time of the wide product.
        if self.measure.decomposes:
            table = z @ self.measure.factor(z_left, left=True).T
        else:
            table = self._distances(z, z_left)
        return (table if self.h is None else table.mul_(v @ (v_left * self.h).T)).T

    def _distances(self, left: Tensor, right: Tensor) -> Tensor:
        """(A, K), (B, K) -> (A, B). Those without an inner-product form hold (A, B, K) numbers at a time: they go in blocks."""
        step = max(1, len(left) if self.measure.decomposes else _NUMBERS_PER_BLOCK // (len(right) * self.k))
        return torch.cat([self.measure(left[start : start + step], right) for start in range(0, len(left), step)])

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
        return by_pairs(self._weights(v_side, x, v_side, x), self.measure.for_sums(z_side, z_side))

    def _across(self, v: Tensor, z: Tensor, user_side: Attributes, item_side: Attributes) -> Tensor:
        """Pairs with one attribute on each side: (B, F), (B, G, F') -> (B, G)."""
        v_user, z_user, v_item, z_item = take(v, user_side), take(z, user_side), take(v, item_side), take(z, item_side)
        if self._factored(user_side.ids.shape[-1] + item_side.ids.shape[-1]):
            z_user, z_items = moved(z_user, z_item.flatten(1, 2))
            user = SideSums(*(total.unsqueeze(1) for total in side_sums(v_user, z_user, user_side.x)))
            return squared_across(user, side_sums(v_item, z_items.view(z_item.shape), item_side.x), self._weight())
        weights = self._weights(v_user, user_side.x, v_item.flatten(1, 2), item_side.x.flatten(1, 2))
        products = weights * self.measure.for_sums(z_user, z_item.flatten(1, 2))
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


def _transform(kind: Kind, k: int, layers: int, activation: str, dropout: float, unit: bool, start: Start) -> Transform:
    if kind == "identity":
        return Transform(unit)
    if kind == "mahalanobis":
        return Linear(k, unit, start)
    return Layers(k, layers, activation, dropout, unit, start)


def _start_of_h(kind: StartOfH, k: int) -> Tensor:
    return torch.full((k,), 0.5) if kind == "half" else torch.empty(k).normal_(0.0, 0.01)
