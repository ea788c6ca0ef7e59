r"""GML-FM's second-order term in its exact forms.

.. math:: f(x) = \sum_{i<j} h^\top (v_i \odot v_j) \, D(z_i, z_j) \, x_i x_j

The derivations are in docs/mathematics.md. v, z: (..., F, K); x: (..., F); h: (K,). Padding has x = 0.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

_NEAR = 1e-2  # of |a|^2 + |b|^2: above it the matrix product leaves a relative error of some 1e-5 at most
_PAIRS_PER_BLOCK = 65_536  # whose differences are held at a time


def pair_weights(left: Tensor, right: Tensor, h: Tensor) -> Tensor:
    """h^T (a_i * b_j) for all pairs: (..., F, K), (..., G, K) -> (..., F, G)."""
    return (left * h) @ right.transpose(-1, -2)


def gram_distances(left: Tensor, right: Tensor) -> Tensor:
    """|a_i - b_j|^2 for all pairs by one matrix product, |a|^2 + |b|^2 - 2 a.b: (..., F, K), (..., G, K) -> (..., F, G).

    In float32 each is off by some 1e-7 (|a|^2 + |b|^2), so both sides are `moved` first: beside the largest distance nothing is
    lost, as a sum over pairs needs it. A pair alone may be: `squared_distances`.
    """
    left, right = moved(left, right)
    return torch.add(_norms(left, right), left @ right.transpose(-1, -2), alpha=-2.0)


def squared_distances(left: Tensor, right: Tensor) -> Tensor:
    """`gram_distances`, but pairs that are near each other beside their lengths are computed by their difference."""
    result: Tensor = _SquaredDistances.apply(left, right)  # type: ignore[no-untyped-call]
    return result


class _SquaredDistances(torch.autograd.Function):
    r"""The gradients, 2 (a_i \sum_j g_ij - \sum_j g_ij b_j) and its mirror image, are matrix products for all pairs."""

    @staticmethod
    def forward(left: Tensor, right: Tensor) -> Tensor:
        moved_left, moved_right = moved(left, right)
        norms = _norms(moved_left, moved_right)
        distances = torch.add(norms, moved_left @ moved_right.transpose(-1, -2), alpha=-2.0)
        # Not >=, rather than <: where squares overflow, the difference decides. It is of the points as they came, whose own
        # last digits a move may round.
        near = (~(distances >= _NEAR * norms)).nonzero()
        left, right = (side.expand(*distances.shape[:-2], *side.shape[-2:]) for side in (left, right))
        for pairs in torch.split(near, _PAIRS_PER_BLOCK):
            *rows, i, j = pairs.unbind(1)
            distances[(*rows, i, j)] = (left[(*rows, i)] - right[(*rows, j)]).square().sum(-1)
        return distances

    @staticmethod
    def setup_context(context: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        context.save_for_backward(*inputs)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        (gradient,), inputs = gradients, context.saved_tensors
        left, right = moved(*inputs)
        left_grad = 2.0 * (left * gradient.sum(-1, keepdim=True) - gradient @ right)
        right_grad = 2.0 * (right * gradient.sum(-2).unsqueeze(-1) - gradient.transpose(-1, -2) @ left)
        return left_grad.sum_to_size(inputs[0].shape), right_grad.sum_to_size(inputs[1].shape)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, int | None], left: Tensor, right: Tensor) -> tuple[Tensor, int]:
        sides = (
            side.unsqueeze(0) if dim is None else side.movedim(dim, 0) for side, dim in zip((left, right), in_dims, strict=True)
        )
        return squared_distances(*sides), 0


def _norms(left: Tensor, right: Tensor) -> Tensor:
    """|a_i|^2 + |b_j|^2."""
    return (left * left).sum(-1, keepdim=True) + (right * right).sum(-1).unsqueeze(-2)


def moved(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Both sides less the first point of the left one: (..., F, K), (..., G, K). It changes no distance, but what all points
    have in common no longer takes the digits of their squares.

    The first, not the mean: in a row of attributes it is the id, and padding, which comes later, has any point. Distances do
    not depend on it, so no gradient goes through it.
    """
    if not left.shape[-2]:
        return left, right
    origin = left.detach()[..., :1, :]
    return left - origin, right - origin


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

    It is the same for every origin of z; see `moved`.
    """
    s, t, p = side_sums(v, moved(z, z)[0], x)
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
