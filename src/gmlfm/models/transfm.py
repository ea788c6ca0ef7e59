r"""Translation-based factorization machine, in the form without a sequence that the GML-FM paper compares.

.. math:: \hat y(x) = w_0 + \sum_i w_i x_i + \sum_{i<j} \|v_i + t_i - v_j\|^2 \, x_i x_j

The order of attributes is user, context, item. With a_i = v_i + t_i the double sum over i before j is

.. math:: \sum_j x_j \Big( \sum_{i<j} x_i \|a_i\|^2 + \|v_j\|^2 \sum_{i<j} x_i - 2 v_j^\top \sum_{i<j} x_i a_i \Big)
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gmlfm.kernels.second_order import squared_distances
from gmlfm.kernels.spec import KernelSpec, SumsSpec
from gmlfm.models.gradient import Attributes
from gmlfm.models.layers import FactorModel, linear_term, take
from gmlfm.models.pairwise import PairwiseModel, SideVectors
from gmlfm.models.settings import Factors, Scale


class TransFM(FactorModel, PairwiseModel):
    """A row is (w, v, t): O(FK) a row by running sums, and one inner product of length K + 2 between the sides."""

    decomposes = True

    def __init__(self, k: Factors = 64, v_scale: Scale = 0.01) -> None:
        super().__init__(k, 1 + 2 * k, v_scale)
        self.bias = nn.Parameter(torch.zeros(()))

    def kernel_spec(self) -> KernelSpec | None:
        return SumsSpec(self.k, (self.bias,), translated=True)

    @property
    def side_width(self) -> int:
        return self.k + 2

    def position(self, rows: Tensor, attributes: Attributes) -> Tensor:
        """The mean of the attributes' points."""
        v = take(rows[:, 1 : 1 + self.k], attributes) * attributes.x.abs().unsqueeze(-1)
        return v.sum(-2) / attributes.x.abs().sum(-1, keepdim=True).clamp_min(1e-12)

    def global_term(self) -> Tensor:
        return self.bias

    def linear(self, rows: Tensor) -> Tensor:
        return rows[:, 0]

    def pair_parts(self, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor | None]:
        start, end = left[:, 1 : 1 + self.k] + left[:, 1 + self.k :], right[:, 1 : 1 + self.k]
        return start.new_ones(len(left), len(right)), squared_distances(start, end)

    def side_vectors(self, rows: Tensor, attributes: Attributes, *, is_user: bool) -> SideVectors:
        x = attributes.x
        v, translation = take(rows[:, 1 : 1 + self.k], attributes), take(rows[:, 1 + self.k :], attributes)
        start = v + translation
        xv, xa = v * x.unsqueeze(-1), start * x.unsqueeze(-1)
        v_squares, a_squares = x * v.square().sum(-1), x * start.square().sum(-1)
        self_terms = linear_term(rows[:, :1], attributes) + (
            x * _before(a_squares) + v_squares * _before(x) - 2.0 * (xv * _before(xa, -2)).sum(-1)
        ).sum(-1)
        # Every attribute of the user comes before every one of the item.
        if is_user:
            vector = torch.cat([a_squares.sum(-1, keepdim=True), x.sum(-1, keepdim=True), -2.0 * xa.sum(-2)], dim=-1)
        else:
            vector = torch.cat([x.sum(-1, keepdim=True), v_squares.sum(-1, keepdim=True), xv.sum(-2)], dim=-1)
        return SideVectors(self_terms + self.bias if is_user else self_terms, vector)


def _before(values: Tensor, dim: int = -1) -> Tensor:
    """Sums over the attributes before each."""
    return values.cumsum(dim) - values
