r"""GML-FM in our form: pairs of who and what count more, or less, the nearer they are in a learned metric, and what people had
before counts by a learned metric of each role of the history.

.. math:: \hat y(x) = w_0 + \sum_i w_i x_i
   + \sum_{i<j} h^\top (v_i \odot v_j) \, \big(1 + g \cos(z_i, z_j)\big) x_i x_j,
   \quad z_i = L v_i, \; L \in R^{R \times K}

An attribute a of an earlier item has, in each role, a row v_a' beside its own v_a. With b of the item scored it makes

.. math:: \mathrm{pair}_{role}(a, b) = h^\top (v_a' \odot v_b) \, \big(1 + g_{role} \cos(z_a', z_b)\big) + v_a^\top M_{role} v_b

M is a matrix K x K for each role: what items are like tells what follows them, so that an item which training seldom met in a
role is not left to its rows there. With D_M(a, b) = (v_a - v_b)^T M (v_a - v_b), for a symmetric M, the last term is
(|v_a|_M^2 + |v_b|_M^2 - D_M) / 2, the paper's Mahalanobis distance turned to nearness.

h = 1, g = 0 and M = 0 is FM. M starts as half the identity, the others there, and h and g are learned only if they are asked
for (`weights`, `rank`): without a history the default is FM itself. With D the squared distance of z at unit length,
1 + g cos = (1 + g) - (g / 2) D: the paper's weight times an affine function of the paper's distance; g = -1 and R = K is GML-FM
with z at unit length, h doubled.

With `lengths`, w_i + |v_i|^2 / 2 stands for w_i: a pair and the weights of its two attributes are then half the squared
distance of v_a and -v_b, the paper's distance without the paper's weight h.

A row of the table is (w, v). By sides a score is one inner product of K (1 + R) numbers, K where R = 0:

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
from gmlfm.kernels.outer_sums import outer_sums, side_sums
from gmlfm.kernels.spec import GatedSpec, KernelSpec, SumsSpec
from gmlfm.models.base import FitInputs
from gmlfm.models.gradient import Attributes
from gmlfm.models.layers import FactorModel, weighted_sum
from gmlfm.models.pairwise import PairwiseModel, SideVectors
from gmlfm.models.settings import Choice, Factors, Scale, Setting

_RANK = Setting("rows R of the metric's matrix L, at most k; 0: no metric, weights alone", least=0, search=Choice((0, 4, 8)))
_LENGTHS = Setting(
    "whether an attribute weighs half its squared length more, as pairs by distance do", search=Choice((False, True))
)
# M starts as so much of the identity, and moves by so much: a step of Adam moves all K numbers of a row of M, so that without
# the division a product with it would move K times as far as a row of the table.
_NEARNESS, _METRIC_STEP = 0.5, 40.0


class GatedGMLFM(FactorModel, PairwiseModel):
    """O(F K (1 + R)) a side, and O(K^2) an item and role. gates: of pairs without a history, then of each role in the order of
    ROLES, in which the matrices M stand, too."""

    decomposes = True
    earlier_by_own_rows = True

    def __init__(
        self,
        k: Factors = 64,
        rank: Annotated[int, _RANK] = 0,
        weights: Annotated[
            bool, Setting("whether each factor has a weight h; otherwise 1", search=Choice((False, True)))
        ] = False,
        metrics: Annotated[bool, Setting("whether earlier items count by their own rows, too, through a matrix M")] = True,
        lengths: Annotated[bool, _LENGTHS] = False,
        v_scale: Scale = 0.01,
    ) -> None:
        super().__init__(k, 1 + k, v_scale)
        if rank > k:
            raise OptionError(f"rank is {rank}, but k is {k}; a metric of K factors has at most K rows.")
        self.rank, self.has_metrics, self.has_lengths = rank, metrics, lengths
        self.bias = nn.Parameter(torch.zeros(()))
        self.h = nn.Parameter(torch.ones(k), requires_grad=weights)
        matrix = nn.init.orthogonal_(torch.empty(rank, k)) if rank else torch.empty(0, k)
        self.matrix = nn.Parameter(matrix, requires_grad=rank > 0)
        self.gates = nn.Parameter(torch.zeros(1 + len(ROLES)), requires_grad=rank > 0)
        self.metrics = nn.Parameter(
            torch.zeros(len(ROLES), k, k), requires_grad=False
        )  # beside the start; learned with a history
        self._start: Tensor
        self.register_buffer("_start", _NEARNESS * torch.eye(k), persistent=False)

    def transform_rows(self, rows: Tensor) -> Tensor:
        """(w, v, z), z at unit length."""
        if self.has_lengths:
            own = 0.5 * rows[:, 1:].square().sum(1, keepdim=True)
            rows = torch.cat([rows[:, :1] + own, rows[:, 1:]], dim=1)
        if not self.rank:
            return rows
        return torch.cat([rows, directions(rows[:, 1:] @ self.matrix.T)], dim=1)

    def kernel_spec(self) -> KernelSpec | None:
        """Steps without histories; with them engines know side vectors alone."""
        if self.has_lengths:
            return None
        if not self.rank and not self.h.requires_grad:
            return SumsSpec(self.k, (self.bias,))
        if not self.rank or not self.h.requires_grad:
            return None
        return GatedSpec(self.k, (self.bias, self.h, self.matrix, self.gates), rank=self.rank)

    def attach(self, inputs: FitInputs) -> None:
        super().attach(inputs)
        self.metrics.requires_grad_(self.has_metrics and inputs.history is not None)

    @property
    def side_width(self) -> int:
        return self.k * (1 + self.rank)

    def global_term(self) -> Tensor:
        return self.bias

    def linear(self, rows: Tensor) -> Tensor:
        return rows[:, 0]

    def side_vectors(self, rows: Tensor, attributes: Attributes, *, is_user: bool) -> SideVectors:
        if not self.rank and not self.h.requires_grad:  # as in FM
            linear, vector, inner = side_sums(rows, self.k, attributes.ids, attributes.x)
            return SideVectors(linear + inner + self.bias if is_user else linear + inner, vector)
        self_terms, vector = outer_sums(rows, self.k, attributes.ids, attributes.x)
        weighted = vector * self._scale(self.gates[0])
        if attributes.ids.shape[-1] > 1:
            v, z = rows[:, 1 : 1 + self.k], rows[:, 1 + self.k :]
            lengths = (v * self.h * v).sum(1, keepdim=True) * (1.0 + self.gates[0] * z.square().sum(1, keepdim=True))
            own = weighted_sum(lengths, replace(attributes, x=attributes.x.square())).squeeze(-1)
            self_terms = self_terms + 0.5 * ((weighted * vector).sum(-1) - own)
        return SideVectors(self_terms + self.bias if is_user else self_terms, weighted if is_user else vector)

    def history_vectors(self, rows: Tensor, attributes: Attributes) -> Tensor:
        """What their rows in a role add, (N, 1 + K (1 + R)), and behind it the sums of x v by their own, (N, K)."""
        n = attributes.ids.shape[-1] // 2
        linear, vector = outer_sums(rows, self.k, attributes.ids[..., :n], attributes.x[..., :n])
        _, own = outer_sums(rows[:, : 1 + self.k], self.k, attributes.ids[..., n:], attributes.x[..., n:])
        return torch.cat([linear.unsqueeze(-1), vector, own], dim=-1)

    def resting_points(self) -> list[tuple[nn.Parameter, float]]:
        return [(self.h, 1.0), (self.gates, 0.0), (self.metrics, 0.0)]

    def in_role(self, vectors: Tensor, role: Role) -> Tensor:
        of_role, own = vectors[:, : -self.k], vectors[:, -self.k :]
        scaled = of_role * torch.cat([self.h.new_ones(1), self._scale(self._gate(role))])
        if not self.has_metrics:
            return scaled
        by_metric = scaled[:, 1 : 1 + self.k] + own @ self._metric(role)
        return torch.cat([scaled[:, :1], by_metric, scaled[:, 1 + self.k :]], dim=1)

    def pair_parts(self, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor | None]:
        return self._parts(left, right, self.gates[0])

    def earlier_pair_parts(self, earlier: Tensor, scored: Tensor, role: Role) -> tuple[Tensor, Tensor | None]:
        return self._parts(earlier, scored, self._gate(role))

    def own_pair_values(self, earlier: Tensor, scored: Tensor, role: Role) -> Tensor:
        values = earlier[:, 1 : 1 + self.k] @ self._metric(role) @ scored[:, 1 : 1 + self.k].T
        return values if self.has_metrics else torch.zeros_like(values)

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

    def _metric(self, role: Role) -> Tensor:
        """M of a role."""
        return self._start + self.metrics[ROLES.index(role)] * (_METRIC_STEP / self.k)

    def _scale(self, gate: Tensor) -> Tensor:
        """h, and g h for each column of z: (K (1 + R),)."""
        return torch.cat([self.h, (gate * self.h).repeat(self.rank)])
