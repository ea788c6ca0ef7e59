r"""Translation-based factorization machine, in the form without a sequence that the GML-FM paper compares.

.. math:: \hat y(x) = w_0 + \sum_i w_i x_i + \sum_{i<j} \|v_i + t_i - v_j\|^2 \, x_i x_j

The order of attributes is user, context, item. With a_i = v_i + t_i the double sum over i before j is

.. math:: \sum_j x_j \Big( \sum_{i<j} x_i \|a_i\|^2 + \|v_j\|^2 \sum_{i<j} x_i - 2 v_j^\top \sum_{i<j} x_i a_i \Big)
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gmlfm.kernels.second_order import moved, squared_distances
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
        self.points = slice(1, 1 + k)
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
        # Moved before t is added, which far from the origin would be rounded away.
        end, v_left = moved(right[:, self.points], left[:, self.points])
        return end.new_ones(len(left), len(right)), squared_distances(v_left + left[:, 1 + self.k :], end)

    def scores(self, rows: Tensor, user_side: Attributes, item_side: Attributes) -> Tensor:
        if not user_side.ids.shape[-1]:
            return super().scores(rows, user_side, item_side)
        # Any origin gives the same score; that of each user keeps the digits that all points have in common from being squared.
        origin = take(rows[:, self.points].detach(), user_side)[..., :1, :]
        user = self._side(rows, user_side, origin, is_user=True)
        item = self._side(rows, item_side, origin.unsqueeze(1), is_user=False)
        return user.self_terms.unsqueeze(1) + item.self_terms + (item.vector @ user.vector.unsqueeze(-1)).squeeze(-1)

    def side_vectors(self, rows: Tensor, attributes: Attributes, *, is_user: bool) -> SideVectors:
        return self._side(rows, attributes, rows.new_zeros(self.k), is_user=is_user)

    def _side(self, rows: Tensor, attributes: Attributes, origin: Tensor, *, is_user: bool) -> SideVectors:
        """origin: broadcast to the side's points (..., F, K), the same for both sides."""
        x, translation = attributes.x, take(rows[:, 1 + self.k :], attributes)
        v = take(rows[:, self.points], attributes)
        near_v, _ = moved(v, v)
        near_a, amount = near_v + translation, x.unsqueeze(-1)
        self_terms = linear_term(rows[:, :1], attributes) + (
            x * _before(x * near_a.square().sum(-1))
            + x * near_v.square().sum(-1) * _before(x)
            - 2.0 * (near_v * amount * _before(near_a * amount, -2)).sum(-1)
        ).sum(-1)
        # Every attribute of the user comes before every one of the item.
        points = v - origin + translation if is_user else v - origin
        squares, amounts = (x * points.square().sum(-1)).sum(-1, keepdim=True), x.sum(-1, keepdim=True)
        total = (points * amount).sum(-2)
        if is_user:
            return SideVectors(self_terms + self.bias, torch.cat([squares, amounts, -2.0 * total], dim=-1))
        return SideVectors(self_terms, torch.cat([amounts, squares, total], dim=-1))


def _before(values: Tensor, dim: int = -1) -> Tensor:
    """Sums over the attributes before each."""
    return values.cumsum(dim) - values
