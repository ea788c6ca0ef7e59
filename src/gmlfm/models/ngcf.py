r"""Neural graph collaborative filtering: ids, and the graph of training positives.

.. math:: E^{l+1} = \mathrm{LeakyReLU}\big( (L + I) E^l W_1 + (L E^l \odot E^l) W_2 \big), \quad L = D^{-1/2} A D^{-1/2}, \quad
   \hat y(u, i) = [e^0_u; \dots; e^n_u]^\top [e^0_i; \dots; e^n_i]

Every layer's output is scaled to unit length before it is joined. An id without a row stands at the unknown row, a node
without neighbours.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from gmlfm.data.dataset import Rows
from gmlfm.errors import OptionError
from gmlfm.models.base import Attributes, Layout, PairwiseModel, SideScores
from gmlfm.models.layers import FactorModel, id_rows, share
from gmlfm.models.spaces import DROPOUT, FACTORS, SCALE, Choice

SPACE = {
    "k": FACTORS,
    "layers": Choice((1, 2, 3, 4)),
    "dropout": DROPOUT,
    "node_dropout": DROPOUT,
    "v_scale": SCALE,
}


class NGCF(FactorModel, PairwiseModel):
    """O(edges K) a layer and step, whatever the batch, so its batches are large.

    dropout: of messages; node_dropout: the share of edges left out of a step.
    """

    ids_only = whole_table = True
    edges: Tensor

    def __init__(
        self,
        layout: Layout,
        k: int = 64,
        layers: int = 2,
        dropout: float = 0.1,
        node_dropout: float = 0.0,
        v_scale: float = 0.1,
    ) -> None:
        super().__init__(k, k, v_scale)
        if not 0 <= layers <= 4:
            raise OptionError(f"layers is {layers}; expected 0 to 4.")
        self.dropout, self.node_dropout = share(dropout, "dropout"), share(node_dropout, "node_dropout")
        users, items = layout.id_field("user"), layout.id_field("item")
        self._users, self._items = (users.offset, users.end), (items.offset, items.end)
        self.own_layers, self.mixed = (nn.ModuleList(nn.Linear(k, k) for _ in range(layers)) for _ in range(2))
        # Edges as (user, item) nodes; users' id rows come first, then the items'. Saved with the weights.
        self.register_buffer("edges", torch.zeros(2, 0, dtype=torch.int32))
        self._made: Tensor | None = None

    def set_graph(self, user_rows: Rows, item_rows: Rows) -> None:
        users, items = torch.from_numpy(user_rows), torch.from_numpy(item_rows)
        n_users = self._users[1] - self._users[0]
        nodes = torch.stack([users - self._users[0], items - self._items[0] + n_users])
        own = (users > self._users[0] + 1) & (items > self._items[0] + 1)  # the unknown and missing rows have no neighbours
        self.edges, self._made = torch.unique(nodes[:, own], dim=1).to(torch.int32).to(self.edges.device), None

    def transform_rows(self, rows: Tensor) -> Tensor:
        """Propagate, and put the joined vectors back in the places of the table's rows; the rest stays as it is."""
        first, second = slice(*self._users), slice(*self._items)
        nodes = torch.cat([rows[first], rows[second]])
        joined = self._propagated(nodes)
        n_users = self._users[1] - self._users[0]
        wide = functional.pad(rows, (0, joined.shape[1] - self.k))
        return torch.cat(
            [wide[: first.start], joined[:n_users], wide[first.stop : second.start], joined[n_users:], wide[second.stop :]]
        )

    @property
    def side_width(self) -> int:
        return self.k * (1 + len(self.own_layers))

    def linear(self, rows: Tensor) -> Tensor:
        return torch.zeros_like(rows[:, 0])

    def pair_parts(self, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor | None]:
        return left @ right.T, None

    def side_vectors(self, rows: Tensor, attributes: Attributes, *, is_user: bool) -> SideScores:
        vector = id_rows(rows, attributes)
        return SideScores(vector.new_zeros(vector.shape[:-1]), vector)

    def _propagated(self, nodes: Tensor) -> Tensor:
        graph = self._graph(nodes)
        layers = [nodes]
        for own, mixed in zip(self.own_layers, self.mixed, strict=True):
            around = _SymmetricProduct.apply(graph, layers[-1])  # type: ignore[no-untyped-call]
            layers.append(self._layer(own, mixed, layers[-1], around))
        return torch.cat([layers[0], *(functional.normalize(one, dim=1) for one in layers[1:])], dim=1)

    def _layer(self, own: nn.Module, mixed: nn.Module, nodes: Tensor, around: Tensor) -> Tensor:
        joined = functional.leaky_relu(own(around + nodes) + mixed(around * nodes), 0.2)
        return functional.dropout(joined, self.dropout, self.training)

    def _graph(self, nodes: Tensor) -> Tensor:
        """L as a sparse matrix, made once; in training with edges left out, by which the degrees do not change."""
        dropped = self.training and self.node_dropout > 0
        if self._made is None or dropped or self._made.device != nodes.device or self._made.dtype != nodes.dtype:
            made = self._make_graph(nodes, dropped)
            if dropped:
                return made
            self._made = made
        return self._made

    def _make_graph(self, nodes: Tensor, dropped: bool) -> Tensor:
        users, items = self.edges.long()
        degree = torch.bincount(torch.cat([users, items]), minlength=len(nodes)).to(nodes.dtype).clamp_min(1.0)
        weights = (degree[users] * degree[items]).rsqrt()
        if dropped:
            kept = torch.rand(len(weights), device=weights.device) >= self.node_dropout
            users, items, weights = users[kept], items[kept], weights[kept] / (1.0 - self.node_dropout)
        left, right, both = torch.cat([users, items]), torch.cat([items, users]), torch.cat([weights, weights])
        order = torch.argsort(left * len(nodes) + right)
        starts = functional.pad(torch.bincount(left, minlength=len(nodes)).cumsum(0), (1, 0))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch says that its CSR format is in beta
            return torch.sparse_csr_tensor(starts, right[order], both[order], (len(nodes), len(nodes)))

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *rest: Any) -> None:
        # The graph of a saved run has as many edges as it had.
        self.edges, self._made = torch.zeros_like(state_dict[f"{prefix}edges"], device=self.edges.device), None
        super()._load_from_state_dict(state_dict, prefix, *rest)


class _SymmetricProduct(torch.autograd.Function):
    """L E for a symmetric sparse L that needs no gradient: backwards it is the same product."""

    @staticmethod
    def forward(context: Any, graph: Tensor, nodes: Tensor) -> Tensor:
        context.graph = graph
        return graph @ nodes

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[None, Tensor]:
        return None, context.graph @ gradients[0]
