r"""Neural factorization machine.

.. math:: \hat y(x) = w_0 + \sum_i w_i x_i + p^\top \mathrm{MLP}(f_{BI}(x)), \quad
   f_{BI}(x) = \sum_{i<j} x_i v_i \odot x_j v_j

Batch norm and dropout follow the pooling and each layer.
"""

from __future__ import annotations

from typing import Annotated

from torch import Tensor, nn

from gmlfm.models.gradient import Attributes
from gmlfm.models.layers import FactorModel, Normed, check_widths, linear_term, mlp, scaled, widths
from gmlfm.models.settings import Choice, Dropout, Factors, Scale, Setting

_HIDDEN = Setting("sizes of the layers", check=check_widths, search=Choice(("", "64", "64,64", "128")))


class NFM(FactorModel):
    """A row is (w, v). The pooling by sides: f(u) + f(i) + s_u * s_i, so a user's part is computed once for all items."""

    def __init__(
        self,
        k: Factors = 64,
        hidden: Annotated[str, _HIDDEN] = "64",
        dropout: Dropout = 0.2,
        norm: Annotated[bool, Setting("batch norm after the pooling and each layer", search=Choice((False, True)))] = False,
        v_scale: Scale = 0.01,
    ) -> None:
        super().__init__(k, 1 + k, v_scale)
        layers = widths(hidden)
        self.pooled = nn.Sequential(*([Normed(k)] if norm else []), nn.Dropout(dropout))
        self.deep = mlp(k, layers, dropout, norm)
        self.head = nn.Linear(layers[-1] if layers else k, 1)

    def scores(self, rows: Tensor, user_side: Attributes, item_side: Attributes) -> Tensor:
        user_sum, user_pool = _pooled(rows, user_side)
        item_sum, item_pool = _pooled(rows, item_side)
        pool = user_pool.unsqueeze(1) + item_pool + user_sum.unsqueeze(1) * item_sum
        linear = linear_term(rows[:, :1], user_side).unsqueeze(1) + linear_term(rows[:, :1], item_side)
        deep: Tensor = self.head(self.deep(self.pooled(pool))).squeeze(-1)
        return linear + deep


def _pooled(rows: Tensor, attributes: Attributes) -> tuple[Tensor, Tensor]:
    """The sum of x v, and the bi-interaction within one side."""
    factors = scaled(rows[:, 1:], attributes)
    total = factors.sum(-2)
    return total, 0.5 * (total.square() - factors.square().sum(-2))
