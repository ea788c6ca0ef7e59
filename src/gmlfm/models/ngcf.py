r"""Neural graph collaborative filtering: ids, and the graph of training positives.

.. math:: E^{l+1} = \mathrm{LeakyReLU}\big( (L + I) E^l W_1 + (L E^l \odot E^l) W_2 \big), \quad L = D^{-1/2} A D^{-1/2}, \quad
   \hat y(u, i) = [e^0_u; \dots; e^n_u]^\top [e^0_i; \dots; e^n_i]

Every layer's output is scaled to unit length before it is joined. An id without a row stands at the unknown row, a node
without neighbours.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from gmlfm.models.base import FitInputs, Inputs, Layout
from gmlfm.models.gradient import Attributes, GradientModel
from gmlfm.models.layers import FactorModel, id_rows
from gmlfm.models.pairwise import PairwiseModel, SideVectors
from gmlfm.models.settings import Choice, Dropout, Factors, Scale, Setting

_LAYERS = Setting("steps of propagation through the graph", least=0, most=4, search=Choice((1, 2, 3, 4)))
_EDGES = Setting("share of edges left out of a step", least=0, below=1, search=Choice((0.0, 0.1, 0.2, 0.3, 0.5)))


class NGCF(FactorModel, PairwiseModel):
    """O(edges K) a layer and step, whatever the batch, so its batches are large.

    dropout: of messages; node_dropout: the share of edges left out of a step.
    """

    takes_history: ClassVar[bool] = False
    inputs: ClassVar[Inputs] = Inputs(graph=True)
    decomposes = ids_only = whole_table = True
    edges: Tensor
    _not_copied: ClassVar[tuple[str, ...]] = ("_scorer", "_graph")  # torch cannot copy a sparse matrix

    def __init__(
        self,
        layout: Layout,
        k: Factors = 64,
        layers: Annotated[int, _LAYERS] = 2,
        dropout: Dropout = 0.1,
        node_dropout: Annotated[float, _EDGES] = 0.0,
        v_scale: Scale = 0.1,
    ) -> None:
        super().__init__(k, k, v_scale)
        self.dropout, self.node_dropout = dropout, node_dropout
        users, items = layout.id_field("user"), layout.id_field("item")
        self._user_rows, self._item_rows = (users.offset, users.end), (items.offset, items.end)
        self.own_layers, self.mixed = (nn.ModuleList(nn.Linear(k, k) for _ in range(layers)) for _ in range(2))
        # Edges as (user, item) nodes; users' id rows come first, then the items'. Saved with the weights.
        self.register_buffer("edges", torch.zeros(2, 0, dtype=torch.int32))
        self._graph: Tensor | None = None

    def set_graph(self, user_rows: npt.NDArray[np.int64], item_rows: npt.NDArray[np.int64]) -> None:
        users, items = torch.from_numpy(user_rows), torch.from_numpy(item_rows)
        n_users = self._user_rows[1] - self._user_rows[0]
        nodes = torch.stack([users - self._user_rows[0], items - self._item_rows[0] + n_users])
        # The unknown and missing rows have no neighbours.
        has_row = (users > self._user_rows[0] + 1) & (items > self._item_rows[0] + 1)
        self.edges, self._graph = torch.unique(nodes[:, has_row], dim=1).to(torch.int32).to(self.edges.device), None

    def transform_rows(self, rows: Tensor) -> Tensor:
        """Propagate, and put the joined vectors back in the places of the table's rows; the rest stays as it is."""
        users, items = slice(*self._user_rows), slice(*self._item_rows)
        nodes = torch.cat([rows[users], rows[items]])
        joined = self._propagated(nodes)
        n_users = self._user_rows[1] - self._user_rows[0]
        wide = functional.pad(rows, (0, joined.shape[1] - self.k))
        return torch.cat(
            [wide[: users.start], joined[:n_users], wide[users.stop : items.start], joined[n_users:], wide[items.stop :]]
        )

    def without_user(self, number: int, rows: tuple[int, ...], inputs: FitInputs) -> GradientModel:
        """The graph, too, knows whom the user chose."""
        model = super().without_user(number, rows, inputs)
        if isinstance(model, NGCF):
            places = torch.tensor(rows, dtype=model.edges.dtype) - self._user_rows[0]
            model.edges = model.edges[:, ~torch.isin(model.edges[0], places)].contiguous()
            model._graph = None
        return model

    @property
    def side_width(self) -> int:
        return self.k * (1 + len(self.own_layers))

    def pair_parts(self, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor | None]:
        return left @ right.T, None

    def side_vectors(self, rows: Tensor, attributes: Attributes, *, is_user: bool) -> SideVectors:
        vector = id_rows(rows, attributes)
        return SideVectors(vector.new_zeros(vector.shape[:-1]), vector)

    def _propagated(self, nodes: Tensor) -> Tensor:
        graph = self._graph_of(nodes)
        layers = [nodes]
        for own_layer, mixed in zip(self.own_layers, self.mixed, strict=True):
            around = _SymmetricProduct.apply(graph, layers[-1])  # type: ignore[no-untyped-call]
            layers.append(self._layer(own_layer, mixed, layers[-1], around))
        return torch.cat([layers[0], *(functional.normalize(layer, dim=1) for layer in layers[1:])], dim=1)

    def _layer(self, own_layer: nn.Module, mixed: nn.Module, nodes: Tensor, around: Tensor) -> Tensor:
        joined = functional.leaky_relu(own_layer(around + nodes) + mixed(around * nodes), 0.2)
        return functional.dropout(joined, self.dropout, self.training)

    def _graph_of(self, nodes: Tensor) -> Tensor:
        """L as a sparse matrix, made once; in training with edges left out, by which the degrees do not change."""
        dropped = self.training and self.node_dropout > 0
        graph = self._graph
        if graph is None or dropped or graph.device != nodes.device or graph.dtype != nodes.dtype:
            graph = self._make_graph(nodes, dropped)
            if not dropped:
                self._graph = graph
        return graph

    def _make_graph(self, nodes: Tensor, dropped: bool) -> Tensor:
        users, items = self.edges.long()
        degree = torch.bincount(torch.cat([users, items]), minlength=len(nodes)).to(nodes.dtype).clamp_min(1.0)
        weights = (degree[users] * degree[items]).rsqrt()
        if dropped:
            is_kept = torch.rand(len(weights), device=weights.device) >= self.node_dropout
            users, items, weights = users[is_kept], items[is_kept], weights[is_kept] / (1.0 - self.node_dropout)
        left, right, both = torch.cat([users, items]), torch.cat([items, users]), torch.cat([weights, weights])
        order = torch.argsort(left * len(nodes) + right)
        starts = functional.pad(torch.bincount(left, minlength=len(nodes)).cumsum(0), (1, 0))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch says that its CSR format is in beta
            return torch.sparse_csr_tensor(starts, right[order], both[order], (len(nodes), len(nodes)))

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:  # type: ignore[override]
        super().load_state_dict(state)
        if self.edges.numel() and not 0 <= int(self.edges.min()) <= int(self.edges.max()) < len(self.table):
            raise ValueError("an edge of their graph names a row that is not there")

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *rest: Any) -> None:
        # The graph of a saved run has as many edges as it had.
        self.edges, self._graph = torch.zeros_like(state_dict[f"{prefix}edges"], device=self.edges.device), None
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
