r"""Matrix factorization from ids alone.

.. math:: \hat y(u, i) = b + b_u + b_i + p_u^\top q_i

One scorer, three objectives: `mf` (squared), `bpr-mf` (BPR), and `pmf`, which has no biases and, as the maximum a posteriori
under Gaussian priors, adds the L2 of the factors that each instance touches:

.. math:: \frac1{|B|} \sum_{(u,i) \in B} (\hat y_{ui} - y_{ui})^2 + \lambda_u \|p_u\|^2 + \lambda_i \|q_i\|^2
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from torch import Tensor, nn

from gmlfm.kernels.spec import KernelSpec, SumsSpec
from gmlfm.models.base import Inputs
from gmlfm.models.gradient import Attributes
from gmlfm.models.layers import FactorModel, id_rows
from gmlfm.models.pairwise import PairwiseModel, SideVectors
from gmlfm.models.settings import Factors, Real, Scale, Setting

_L2 = Real(1e-5, 1.0)


class MF(FactorModel, PairwiseModel):
    """A row is (b, p): O(K) a pair. Other attributes than ids are not looked at."""

    inputs: ClassVar[Inputs] = Inputs(history=True)
    decomposes = ids_only = True

    def __init__(
        self,
        k: Factors = 64,
        biases: Annotated[bool, Setting("whether users and items have a bias")] = True,
        lambda_user: Annotated[float, Setting("L2 of the users' factors, for each instance", least=0, search=_L2)] = 0.0,
        lambda_item: Annotated[float, Setting("L2 of the items' factors, for each instance", least=0, search=_L2)] = 0.0,
        v_scale: Scale = 0.01,
    ) -> None:
        super().__init__(k, 1 + k, v_scale)
        self.biases = biases
        self.lambda_user, self.lambda_item = lambda_user, lambda_item
        self.bias = nn.Parameter(torch.zeros(()))

    def kernel_spec(self) -> KernelSpec | None:
        return SumsSpec(
            self.k, (self.bias,), ids_only=True, linear=self.biases, user_l2=self.lambda_user, item_l2=self.lambda_item
        )

    @property
    def side_width(self) -> int:
        return self.k

    def global_term(self) -> Tensor:
        return self.bias

    def linear(self, rows: Tensor) -> Tensor:
        return rows[:, 0] if self.biases else torch.zeros_like(rows[:, 0])

    def pair_parts(self, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor | None]:
        return left[:, 1:] @ right[:, 1:].T, None

    def side_vectors(self, rows: Tensor, attributes: Attributes, *, is_user: bool) -> SideVectors:
        side = id_rows(rows, attributes)
        self_terms = side[..., 0] if self.biases else torch.zeros_like(side[..., 0])
        return SideVectors(self_terms + self.bias if is_user else self_terms, side[..., 1:])

    def penalty(self, rows: Tensor, user_side: Attributes, item_side: Attributes) -> Tensor | None:
        if self.lambda_user == 0 and self.lambda_item == 0:
            return None
        squares = rows[:, 1:].square().sum(1, keepdim=True)
        user, item = id_rows(squares, user_side), id_rows(squares, item_side)
        return self.lambda_user * user.mean() + self.lambda_item * item.mean()
