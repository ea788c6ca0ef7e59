r"""The factorization machine.

.. math:: \hat y(x) = w_0 + \sum_i w_i x_i + \sum_{i<j} v_i^\top v_j \, x_i x_j
   = w_0 + \sum_i w_i x_i + \tfrac12 \Big( \big\|\sum_i x_i v_i\big\|^2 - \sum_i x_i^2 \|v_i\|^2 \Big)
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gmlfm.models.base import Attributes, Pairwise, SideScores
from gmlfm.models.layers import FactorModel, linear_term, scaled
from gmlfm.models.spaces import FACTORS, SCALE

SPACE = {"k": FACTORS, "v_scale": SCALE}


class FM(FactorModel, Pairwise):
    """A row is (w, v): O(FK) a row. By sides the score is own_u + own_i + s_u . s_i, where s is the sum of x v."""

    def __init__(self, k: int = 64, v_scale: float = 0.01) -> None:
        super().__init__(k, 1 + k, v_scale)
        self.bias = nn.Parameter(torch.zeros(()))

    @property
    def side_width(self) -> int:
        return self.k

    def linear(self, rows: Tensor) -> Tensor:
        return rows[:, 0]

    def pair_parts(self, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor | None]:
        return left[:, 1:] @ right[:, 1:].T, None

    def sides(self, rows: Tensor, attributes: Attributes, *, asking: bool) -> SideScores:
        factors = scaled(rows[:, 1:], attributes)
        total = factors.sum(-2)
        within = 0.5 * (total.square().sum(-1) - factors.square().sum((-1, -2)))
        own = linear_term(rows[:, :1], attributes) + within
        return SideScores(own + self.bias if asking else own, total)
