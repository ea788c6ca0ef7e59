r"""xDeepFM: a linear part, a compressed interaction network and a deep part over the same field embeddings.

.. math:: X^l_h = \sum_{a,b} W^{l,h}_{ab} \, (X^{l-1}_a \odot X^0_b)

X^0 holds the m field embeddings. An activation may follow (the authors found the identity best). With split_half the first
half of a layer's maps goes on to the next, the other half to the output; each output map is summed over its K numbers.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from torch import Tensor, nn

from gmlfm.errors import OptionError
from gmlfm.models.base import Layout
from gmlfm.models.deepfm import Deep, Fields
from gmlfm.models.gradient import Attributes
from gmlfm.models.layers import FactorModel, check_widths, linear_term, widths
from gmlfm.models.settings import Choice, Dropout, Scale, Setting

_FACTORS = Setting("factors of each attribute", least=1, most=10_000, search=Choice((8, 10, 16, 32, 64, 128)))
_CIN = Setting(
    "maps of each layer of the interaction network",
    check=check_widths,
    search=Choice(("16", "32,32", "100,100", "200,200,200")),
)
_SPLIT_HALF = Setting("half of a layer's maps go to the output alone", search=Choice((False, True)))
_ACTIVATION = Setting("activation of the interaction network", search=Choice(("identity", "relu")))
_HIDDEN = Setting("sizes of the deep part's layers", check=check_widths, search=Choice(("64,64", "200,200", "400,400")))


class CIN(nn.Module):
    """(N, m, K) -> (N, outputs): O(m H K) a layer and map."""

    def __init__(self, n_fields: int, maps: list[int], split_half: bool, activation: str = "identity") -> None:
        super().__init__()
        if not maps or (split_half and any(size % 2 for size in maps[:-1])):
            raise OptionError(f"cin is {maps}; expected one layer or more, of even sizes where split_half divides them.")
        self.split_half, self.relu = split_half, activation == "relu"
        self.layers = nn.ModuleList()
        before, self.n_outputs = n_fields, 0
        for number, size in enumerate(maps):
            self.layers.append(nn.Linear(before * n_fields, size, bias=False))
            goes_on = size // 2 if split_half and number < len(maps) - 1 else size
            self.n_outputs += size - goes_on if split_half and number < len(maps) - 1 else size
            before = goes_on

    def forward(self, fields: Tensor) -> Tensor:
        outputs, hidden = [], fields
        for number, layer in enumerate(self.layers):
            products = torch.einsum("nak,nbk->nkab", hidden, fields).flatten(2)
            maps = layer(products).transpose(1, 2)
            maps = torch.relu(maps) if self.relu else maps
            if self.split_half and number < len(self.layers) - 1:
                hidden, out = maps.chunk(2, dim=1)
            else:
                hidden = out = maps
            outputs.append(out.sum(-1))
        return torch.cat(outputs, dim=1)


class XDeepFM(FactorModel):
    """A row is (w, v). cin: the maps of each layer."""

    needs_fields = True

    def __init__(
        self,
        layout: Layout,
        k: Annotated[int, _FACTORS] = 32,
        cin: Annotated[str, _CIN] = "32,32",
        split_half: Annotated[bool, _SPLIT_HALF] = True,
        cin_activation: Annotated[Literal["identity", "relu"], _ACTIVATION] = "identity",
        hidden: Annotated[str, _HIDDEN] = "64,64",
        dropout: Dropout = 0.2,
        v_scale: Scale = 0.01,
    ) -> None:
        super().__init__(k, 1 + k, v_scale)
        self.fields = Fields(layout)
        self.cin = CIN(self.fields.n_users + self.fields.n_items, widths(cin), split_half, cin_activation)
        self.deep = Deep(self.fields.n_users, self.fields.n_items, k, widths(hidden), dropout)
        self.head = nn.Linear(self.cin.n_outputs, 1)

    def scores(self, rows: Tensor, user_side: Attributes, item_side: Attributes) -> Tensor:
        user = self.fields(rows[:, 1:], user_side, is_user=True)
        item = self.fields(rows[:, 1:], item_side, is_user=False)
        fields = torch.cat([user.unsqueeze(1).expand(-1, item.shape[1], -1, -1), item], dim=2)
        crossed: Tensor = self.head(self.cin(fields.flatten(0, 1))).view(item.shape[:2])
        linear = linear_term(rows[:, :1], user_side).unsqueeze(1) + linear_term(rows[:, :1], item_side)
        deep: Tensor = self.deep(user, item)
        return linear + crossed + deep
