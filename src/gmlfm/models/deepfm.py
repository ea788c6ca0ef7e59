r"""DeepFM: a factorization machine and a deep part over the same embeddings.

.. math:: \hat y(x) = \hat y_{FM}(x) + p^\top \mathrm{MLP}([e_1; \dots; e_m]), \quad e_f = \sum_{i \in f} x_i v_i

One e for each of the m fields; the members of a set are pooled.
"""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor, nn

from gmlfm.models.base import Layout
from gmlfm.models.fm import FM
from gmlfm.models.gradient import Attributes
from gmlfm.models.layers import FactorModel, by_field, check_widths, mlp, scaled, widths
from gmlfm.models.settings import Choice, Dropout, Factors, Scale, Setting

_HIDDEN = Setting(
    "sizes of the deep part's layers", check=check_widths, search=Choice(("64", "64,64", "200,200,200", "400,400,400"))
)


class Fields(nn.Module):
    """Attributes pooled by field: users' and items' fields each in their order."""

    users: Tensor
    items: Tensor

    def __init__(self, layout: Layout) -> None:
        super().__init__()
        self.n_users, self.n_items = len(layout.field_numbers("user")), len(layout.field_numbers("item"))
        for name, side in (("users", layout.field_numbers("user")), ("items", layout.field_numbers("item"))):
            places = torch.zeros(len(layout.fields), dtype=torch.int64)
            places[side] = torch.arange(len(side))
            self.register_buffer(name, places, persistent=False)

    def forward(self, factors: Tensor, attributes: Attributes, *, is_user: bool) -> Tensor:
        """(U, K) -> (..., fields of the side, K)."""
        assert attributes.fields is not None
        values = scaled(factors, attributes)
        places, n = (self.users, self.n_users) if is_user else (self.items, self.n_items)
        return by_field(values, attributes.fields, places, n)


class Deep(nn.Module):
    """p^T MLP over concatenated fields; what the first layer makes of the user is computed once for all their items."""

    def __init__(self, n_users: int, n_items: int, k: int, hidden: list[int], dropout: float) -> None:
        super().__init__()
        n_first = hidden[0] if hidden else 1
        self.user, self.item = nn.Linear(n_users * k, n_first), nn.Linear(n_items * k, n_first, bias=False)
        self.rest = nn.Sequential(
            nn.ReLU(), nn.Dropout(dropout), mlp(n_first, hidden[1:], dropout), nn.Linear(hidden[-1] if hidden else 1, 1)
        )

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        """user (B, fields, K), item (B, G, fields, K) -> (B, G)."""
        hidden = self.user(user.flatten(1)).unsqueeze(1) + self.item(item.flatten(2))
        result: Tensor = self.rest(hidden).squeeze(-1)
        return result


class DeepFM(FactorModel):
    """A row is (w, v)."""

    needs_fields = True

    def __init__(
        self,
        layout: Layout,
        k: Factors = 64,
        hidden: Annotated[str, _HIDDEN] = "64,64",
        dropout: Dropout = 0.2,
        v_scale: Scale = 0.01,
    ) -> None:
        super().__init__(k, 1 + k, v_scale)
        self.machine = FM(k)
        self.fields = Fields(layout)
        self.deep = Deep(self.fields.n_users, self.fields.n_items, k, widths(hidden), dropout)

    def scores(self, rows: Tensor, user_side: Attributes, item_side: Attributes) -> Tensor:
        user = self.fields(rows[:, 1:], user_side, is_user=True)
        item = self.fields(rows[:, 1:], item_side, is_user=False)
        deep: Tensor = self.deep(user, item)
        return self.machine.scores(rows, user_side, item_side) + deep
