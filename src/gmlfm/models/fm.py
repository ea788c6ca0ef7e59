r"""The factorization machine.

.. math:: \hat y(x) = w_0 + \sum_i w_i x_i + \sum_{i<j} v_i^\top v_j \, x_i x_j
   = w_0 + \sum_i w_i x_i + \tfrac12 \Big( \big\|\sum_i x_i v_i\big\|^2 - \sum_i x_i^2 \|v_i\|^2 \Big)
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gmlfm.kernels.outer_sums import outer_sums, side_sums
from gmlfm.kernels.spec import KernelSpec, SumsSpec
from gmlfm.models.gradient import Attributes
from gmlfm.models.layers import FactorModel
from gmlfm.models.pairwise import PairwiseModel, SideVectors
from gmlfm.models.settings import Factors, Scale


class FM(FactorModel, PairwiseModel):
    """A row is (w, v): O(FK) a row. By sides the score is self_u + self_i + s_u . s_i, where s is the sum of x v."""

    decomposes = True

    def __init__(self, k: Factors = 64, v_scale: Scale = 0.01) -> None:
        super().__init__(k, 1 + k, v_scale)
        self.bias = nn.Parameter(torch.zeros(()))

    def kernel_spec(self) -> KernelSpec | None:
        return SumsSpec(self.k, (self.bias,))

    @property
    def side_width(self) -> int:
        return self.k

    def global_term(self) -> Tensor:
        return self.bias

    def linear(self, rows: Tensor) -> Tensor:
        return rows[:, 0]

    def pair_parts(self, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor | None]:
        return left[:, 1:] @ right[:, 1:].T, None

    def side_vectors(self, rows: Tensor, attributes: Attributes, *, is_user: bool) -> SideVectors:
        linear, vector, inner = side_sums(rows, self.k, attributes.ids, attributes.x)
        self_terms = linear + inner
        return SideVectors(self_terms + self.bias if is_user else self_terms, vector)

    def history_vectors(self, rows: Tensor, attributes: Attributes) -> Tensor:
        linear, vector = outer_sums(rows, self.k, attributes.ids, attributes.x)
        return torch.cat([linear.unsqueeze(-1), vector], dim=-1)
