r"""GML-FM's second-order term in its exact forms.

.. math:: f(x) = \sum_{i<j} h^\top (v_i \odot v_j) \, D(z_i, z_j) \, x_i x_j

The derivations are in docs/mathematics.md. v, z: (..., F, K); x: (..., F); h: (K,). Padding has x = 0.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


def pair_weights(left: Tensor, right: Tensor, h: Tensor) -> Tensor:
    """h^T (a_i * b_j) for all pairs: (..., F, K), (..., G, K) -> (..., F, G)."""
    return (left * h) @ right.transpose(-1, -2)


def squared_distances(left: Tensor, right: Tensor) -> Tensor:
    """|a_i - b_j|^2 for all pairs, by the Gram matrix: (..., F, K), (..., G, K) -> (..., F, G)."""
    left_norms = (left * left).sum(-1, keepdim=True)
    right_norms = (right * right).sum(-1).unsqueeze(-2)
    products = left @ right.transpose(-1, -2)
    return torch.add(left_norms + right_norms, products, alpha=-2.0)


def by_pairs(weights: Tensor, distances: Tensor) -> Tensor:
    """Half the sum over ordered pairs of two (..., F, F) matrices, the diagonal left out: O(F^2 K) a row in all.

    A similarity such as the cosine is 1 on the diagonal, which is no pair; a distance is 0 there but for rounding.
    """
    products = weights * distances
    return 0.5 * (products.sum((-1, -2)) - products.diagonal(dim1=-2, dim2=-1).sum(-1))


class SideSums(NamedTuple):
    r"""Sums over one side's attributes: s = \sum x v (..., K), t = \sum x |z|^2 v (..., K), p = \sum x v z^T (..., K, K)."""

    s: Tensor
    t: Tensor
    p: Tensor


def side_sums(v: Tensor, z: Tensor, x: Tensor) -> SideSums:
    """O(F K^2) a row."""
    scaled = v * x.unsqueeze(-1)
    norms = (z * z).sum(-1, keepdim=True)
    return SideSums(scaled.sum(-2), (scaled * norms).sum(-2), scaled.transpose(-1, -2) @ z)


def squared_factored(v: Tensor, z: Tensor, x: Tensor, h: Tensor) -> Tensor:
    r"""The paper's Equations 10 and 11: O(F K^2) a row.

    .. math:: f = s^\top \mathrm{diag}(h) \, t - \sum_d h_d \, \|P_d\|^2
    """
    s, t, p = side_sums(v, z, x)
    return (s * h * t).sum(-1) - ((p * p).sum(-1) * h).sum(-1)


def squared_across(left: SideSums, right: SideSums, h: Tensor) -> Tensor:
    r"""All pairs with one attribute on each side: one inner product of length K^2 + 2K.

    .. math:: s_u^\top H t_i + t_u^\top H s_i - 2 \sum_d h_d \langle P_{u,d}, P_{i,d} \rangle
    """
    linear = ((left.s * right.t + left.t * right.s) * h).sum(-1)
    return linear - 2.0 * ((left.p * right.p).sum(-1) * h).sum(-1)


def across_vectors(sums: SideSums, h: Tensor, *, is_user: bool) -> Tensor:
    """One side as vectors (..., K^2 + 2K), such that user side . item side is `squared_across`."""
    s, t, p = sums
    flat = p.flatten(-2)
    if not is_user:
        return torch.cat([t, s, flat], dim=-1)
    return torch.cat([s * h, t * h, -2.0 * (p * h.unsqueeze(-1)).flatten(-2)], dim=-1)


def pairs_are_cheaper(n_attributes: int, n_factors: int) -> bool:
    """F^2 K against F K^2, with the two matrix products of the pair form."""
    return n_attributes <= n_factors
