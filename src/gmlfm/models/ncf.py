r"""Neural collaborative filtering (NeuMF), from ids alone.

.. math:: \hat y(u, i) = \alpha \, h_1^\top (p_u \odot q_i) + (1 - \alpha) \, h_2^\top \mathrm{MLP}([p'_u; q'_i]) + b

With pretrain epochs, the two parts are first trained each for itself: they share no parameter, so that is training them on
the sum of their losses. The published alpha = 1/2 joins them.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from torch import Tensor, nn

from gmlfm.models.base import Inputs
from gmlfm.models.gradient import Attributes
from gmlfm.models.layers import FactorModel, check_widths, id_rows, mlp, user_beside, widths
from gmlfm.models.settings import Choice, Dropout, Factors, Scale, Setting

_HIDDEN = Setting(
    "sizes of the deep part's layers", check=check_widths, search=Choice(("16", "32,16,8", "64,32,16", "128,64,32"))
)
_PRETRAIN = Setting("epochs in which the two parts are trained apart", least=0, search=Choice((0, 2, 5)))


class NCF(FactorModel):
    """A row is (p, p'): K numbers for the product, K for the deep part."""

    takes_history: ClassVar[bool] = False
    inputs: ClassVar[Inputs] = Inputs(history=True)

    def __init__(
        self,
        k: Factors = 32,
        hidden: Annotated[str, _HIDDEN] = "64,32,16",
        dropout: Dropout = 0.0,
        pretrain: Annotated[int, _PRETRAIN] = 0,
        v_scale: Scale = 0.01,
    ) -> None:
        super().__init__(k, 2 * k, v_scale)
        self.pretrain = pretrain
        layers = widths(hidden)
        self.deep = mlp(2 * k, layers, dropout)
        self.product_head = nn.Parameter(torch.ones(k))
        self.deep_head = nn.Linear(layers[-1] if layers else 2 * k, 1)
        self._apart = False

    @property
    def warm_epochs(self) -> int:
        return self.pretrain

    def begin_epoch(self, number: int) -> None:
        self._apart = number < self.pretrain

    def scores(self, rows: Tensor, user_side: Attributes, item_side: Attributes) -> Tensor:
        product, deep = self._parts(rows, user_side, item_side)
        return 0.5 * (product + deep)

    def score_sets(self, rows: Tensor, user_side: Attributes, item_side: Attributes) -> list[Tensor]:
        product, deep = self._parts(rows, user_side, item_side)
        return [product, deep] if self._apart else [0.5 * (product + deep)]

    def _parts(self, rows: Tensor, user_side: Attributes, item_side: Attributes) -> tuple[Tensor, Tensor]:
        user, item = id_rows(rows, user_side), id_rows(rows, item_side)
        product = (item[..., : self.k] @ (user[:, : self.k] * self.product_head).unsqueeze(-1)).squeeze(-1)
        both = torch.cat([user_beside(user[:, self.k :], item), item[..., self.k :]], dim=-1)
        return product, self.deep_head(self.deep(both)).squeeze(-1)
