r"""GML-FM with a gate: a factorization machine whose pairs count more, or less, the nearer the two are in a learned metric.

.. math:: \hat y(x) = w_0 + \sum_i w_i x_i
   + \sum_{i<j} h^\top (v_i \odot v_j) \, \big(1 + g_{ij} \cos(z_i, z_j)\big) x_i x_j,
   \quad z_i = L v_i, \; L \in R^{R \times K}

g is one number for the pairs of who and what, and one for each role of a history, for its pairs with the item scored.
With D the squared distance of z at unit length, 1 + g cos = (1 + g) - (g / 2) D: the paper's weight times an affine function of
the paper's distance. At the start h = 1 and g = 0, which is FM; g = -1 and R = K is GML-FM with z at unit length, h doubled.

A row of the table is (w, v). By sides a score is one inner product of K (1 + R) numbers,

.. math:: \Big[\sum_i x_i v_i \,;\; g \sum_i x_i \, \mathrm{vec}\big(v_i \tfrac{z_i^\top}{\lVert z_i \rVert}\big)\Big]
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import torch
from torch import Tensor, nn

from gmlfm.data.attributes import ROLES, Role
from gmlfm.distances import directions
from gmlfm.errors import NotSupportedError, OptionError
from gmlfm.kernels.outer_sums import outer_sums
from gmlfm.kernels.spec import GatedSpec, KernelSpec
from gmlfm.models.gradient import Attributes
from gmlfm.models.layers import FactorModel, weighted_sum
from gmlfm.models.pairwise import PairwiseModel, SideVectors
from gmlfm.models.settings import Choice, Factors, Scale, Setting

_RANK = Setting("rows R of the metric's matrix L, at most k; 0: no metric, weights alone", least=0, search=Choice((0, 4, 8)))


class GatedGMLFM(FactorModel, PairwiseModel):
    """O(F K (1 + R)) a side. gates: of pairs without a history, then of each role in the order of ROLES."""

    decomposes = True

    def __init__(
        self,
        k: Factors = 64,
        rank: Annotated[int, _RANK] = 4,
        weights: Annotated[bool, Setting("whether each factor has a weight h; otherwise 1")] = True,
        v_scale: Scale = 0.01,
    ) -> None:
        super().__init__(k, 1 + k, v_scale)
        if rank > k and "rank" in self.settings:
            raise OptionError(f"rank is {rank}, but k is {k}; a metric of K factors has at most K rows.")
        self.rank = rank = min(rank, k)
        self.bias = nn.Parameter(torch.zeros(()))
        self.h = nn.Parameter(torch.ones(k), requires_grad=weights)
        self.matrix = nn.Parameter(nn.init.orthogonal_(torch.empty(rank, k)) if rank else torch.empty(0, k))
        self.gates = nn.Parameter(torch.zeros(1 + len(ROLES)))

    def transform_rows(self, rows: Tensor) -> Tensor:
        """(w, v, z), z at unit length."""
        if not self.rank:
            return rows
        # Of contiguous numbers a row's product has the same bits whichever rows stand beside it, so that a score is the same
        # whatever was asked before.
        return torch.cat([rows, directions(rows[:, 1:].contiguous() @ self.matrix.T)], dim=1)

    def kernel_spec(self) -> KernelSpec | None:
        """Steps without histories; with them engines know side vectors alone."""
        if not self.rank or not self.h.requires_grad:
            return None
        return GatedSpec(self.k, (self.bias, self.h, self.matrix, self.gates), rank=self.rank)

    @property
    def side_width(self) -> int:
        return self.k * (1 + self.rank)

    def global_term(self) -> Tensor:
        return self.bias

    def linear(self, rows: Tensor) -> Tensor:
        return rows[:, 0]

    def side_vectors(self, rows: Tensor, attributes: Attributes, *, is_user: bool) -> SideVectors:
        self_terms, vector = outer_sums(rows, self.k, attributes.ids, attributes.x)
        weighted = vector * self._scale(self.gates[0])
        if attributes.ids.shape[-1] > 1:
            v, z = rows[:, 1 : 1 + self.k], rows[:, 1 + self.k :]
            lengths = (v * self.h * v).sum(1, keepdim=True) * (1.0 + self.gates[0] * z.square().sum(1, keepdim=True))
            own = weighted_sum(lengths, replace(attributes, x=attributes.x.square())).squeeze(-1)
            self_terms = self_terms + 0.5 * ((weighted * vector).sum(-1) - own)
        return SideVectors(self_terms + self.bias if is_user else self_terms, weighted if is_user else vector)

    def history_vectors(self, rows: Tensor, attributes: Attributes) -> Tensor:
        linear, vector = outer_sums(rows, self.k, attributes.ids, attributes.x)
        return torch.cat([linear.unsqueeze(-1), vector], dim=-1)

    def resting_points(self) -> list[tuple[nn.Parameter, float]]:
        return [(self.h, 1.0), (self.gates, 0.0)]

    def in_role(self, vectors: Tensor, role: Role) -> Tensor:
        return vectors * torch.cat([self.h.new_ones(1), self._scale(self._gate(role))])

    def pair_parts(self, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor | None]:
        return self._parts(left, right, self.gates[0])

    def earlier_pair_parts(self, earlier: Tensor, scored: Tensor, role: Role) -> tuple[Tensor, Tensor | None]:
        return self._parts(earlier, scored, self._gate(role))

    def metric(self) -> tuple[Tensor, Tensor]:
        if not self.rank:
            raise NotSupportedError("rank is 0, of which there is no metric; set rank to 1 or more.")
        with torch.no_grad():
            return self.matrix.T @ self.matrix, self.table[:, 1:]

    def _parts(self, left: Tensor, right: Tensor, gate: Tensor) -> tuple[Tensor, Tensor | None]:
        split = 1 + self.k
        weight = (left[:, 1:split] * self.h) @ right[:, 1:split].T
        return weight, 1.0 + gate * (left[:, split:] @ right[:, split:].T) if self.rank else None

    def _gate(self, role: Role) -> Tensor:
        return self.gates[1 + ROLES.index(role)]

    def _scale(self, gate: Tensor) -> Tensor:
        """h, and g h for each column of z: (K (1 + R),)."""
        return torch.cat([self.h, (gate * self.h).repeat(self.rank)])
