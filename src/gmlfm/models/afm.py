r"""Attentional factorization machine.

.. math:: \hat y(x) = w_0 + \sum_i w_i x_i + p^\top \sum_{i<j} a_{ij} \, e_{ij}, \quad e_{ij} = x_i x_j \, v_i \odot v_j, \quad
   a_{ij} = \mathrm{softmax}_{ij} \, h^\top \mathrm{ReLU}(W e_{ij} + b)
"""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor, nn

from gmlfm.models.gradient import Attributes
from gmlfm.models.layers import FactorModel, linear_term, scaled
from gmlfm.models.settings import Choice, Dropout, Factors, Scale, Setting

_ATTENTION = Setting("units of the attention network", least=1, search=Choice((8, 32, 128, 256)))
# The published 1 to 16 weigh a sum over the batch, not a mean.
_L2 = Setting("weight of |W|^2 in the loss", least=0, search=Choice((0.0, 0.0001, 0.001, 0.01, 0.1)))


class AFM(FactorModel):
    """A row is (w, v): O(F^2 K A) a row. dropout falls on the attended sum; attention_l2 is the weight of |W|^2 in the loss.

    The softmax is over the pairs of all attributes, those of x = 0 too: without them a score would jump at x = 0.
    """

    def __init__(
        self,
        k: Factors = 64,
        attention: Annotated[int, _ATTENTION] = 32,
        dropout: Dropout = 0.0,
        attention_l2: Annotated[float, _L2] = 0.0,
        v_scale: Scale = 0.01,
    ) -> None:
        super().__init__(k, 1 + k, v_scale)
        self.attention_l2 = attention_l2
        self.bias = nn.Parameter(torch.zeros(()))
        self.attend = nn.Linear(k, attention)
        self.importance = nn.Linear(attention, 1, bias=False)
        self.drop = nn.Dropout(dropout)
        self.head = nn.Parameter(torch.ones(k))

    def scores(self, rows: Tensor, user_side: Attributes, item_side: Attributes) -> Tensor:
        whole = _together(user_side, item_side)
        left, right = torch.triu_indices(whole.ids.shape[-1], whole.ids.shape[-1], 1, device=rows.device)
        factors = scaled(rows[:, 1:], whole)
        products = factors[..., left, :] * factors[..., right, :]
        logits = self.importance(torch.relu(self.attend(products))).squeeze(-1)
        is_present = whole.is_present[..., left] & whole.is_present[..., right]
        # A row with one attribute has no pair: its weights must not become 0 / 0.
        attention = torch.softmax(logits.masked_fill(~is_present, -1e30), dim=-1) * is_present
        pooled: Tensor = self.drop((attention.unsqueeze(-1) * products).sum(-2))
        return self.bias + linear_term(rows[:, :1], whole) + pooled @ self.head

    def penalty(self, rows: Tensor, user_side: Attributes, item_side: Attributes) -> Tensor | None:
        return self.attention_l2 * self.attend.weight.square().sum() if self.attention_l2 else None


def _together(user_side: Attributes, item_side: Attributes) -> Attributes:
    """Whole rows: (B, F), (B, G, F') -> (B, G, F + F')."""

    def joined(user: Tensor, item: Tensor) -> Tensor:
        return torch.cat([user.unsqueeze(1).expand(-1, item.shape[1], -1), item], dim=-1)

    return Attributes(
        joined(user_side.ids, item_side.ids),
        joined(user_side.x, item_side.x),
        is_present=joined(user_side.is_present, item_side.is_present),
    )
