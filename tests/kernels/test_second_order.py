"""Every form of the second-order term, and its gradient, is the double sum of the definition."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from gmlfm.kernels.second_order import (
    across_vectors,
    by_pairs,
    pair_weights,
    side_sums,
    squared_across,
    squared_distances,
    squared_factored,
)

sizes = st.tuples(st.integers(1, 3), st.integers(1, 7), st.integers(1, 6), st.integers(0, 10_000))


def draw(b: int, f: int, k: int, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    x = normal(b, f)
    x[:, -1] = 0.0  # padding
    return normal(b, f, k), normal(b, f, k), x, normal(k)


def definition(v: Tensor, z: Tensor, x: Tensor, h: Tensor) -> Tensor:
    result = torch.zeros(len(v), dtype=v.dtype)
    for row in range(len(v)):
        for i in range(v.shape[1]):
            for j in range(i + 1, v.shape[1]):
                weight = (h * v[row, i] * v[row, j]).sum()
                result[row] = result[row] + weight * ((z[row, i] - z[row, j]) ** 2).sum() * x[row, i] * x[row, j]
    return result


def squared_by_pairs(v: Tensor, z: Tensor, x: Tensor, h: Tensor) -> Tensor:
    """As GML-FM puts it together."""
    scaled = v * x.unsqueeze(-1)
    return by_pairs(pair_weights(scaled, scaled, h), squared_distances(z, z))


@pytest.mark.parametrize("form", [squared_by_pairs, squared_factored])
@given(size=sizes)
def test_each_form_is_the_double_sum_with_its_gradient(form: object, size: tuple[int, int, int, int]) -> None:
    assert callable(form)
    inputs = [tensor.requires_grad_() for tensor in draw(*size)]
    copies = [tensor.detach().clone().requires_grad_() for tensor in inputs]
    fast, slow = form(*inputs), definition(*copies)
    torch.testing.assert_close(fast, slow, rtol=1e-10, atol=1e-10)
    fast.square().sum().backward()
    if slow.requires_grad:  # one attribute alone makes no pair
        slow.square().sum().backward()
    for tensor, copied in zip(inputs, copies, strict=True):
        expected = torch.zeros_like(tensor) if copied.grad is None else copied.grad
        torch.testing.assert_close(tensor.grad, expected, rtol=1e-9, atol=1e-9)


@given(sizes, st.integers(0, 7))
def test_by_sides_it_is_the_same_sum(size: tuple[int, int, int, int], cut: int) -> None:
    v, z, x, h = draw(*size)
    cut = min(cut, v.shape[1])
    left, right = (v[:, :cut], z[:, :cut], x[:, :cut]), (v[:, cut:], z[:, cut:], x[:, cut:])
    user, item = side_sums(*left), side_sums(*right)
    across = squared_across(user, item, h)
    total = definition(*left, h) + definition(*right, h) + across
    torch.testing.assert_close(total, definition(v, z, x, h), rtol=1e-10, atol=1e-10)
    as_vectors = (across_vectors(user, h, is_user=True) * across_vectors(item, h, is_user=False)).sum(-1)
    torch.testing.assert_close(as_vectors, across, rtol=1e-10, atol=1e-10)


def test_the_released_expression_is_another_function() -> None:
    """h_q v_jq z_iq (z_j . v_i) in the second term equals the paper's only when z = v; docs/mathematics.md shows the case."""
    v, z, x, h = draw(1, 4, 3, 7)
    x = torch.ones_like(x)

    def released(v: Tensor, z: Tensor) -> Tensor:
        norms = (z * z).sum(-1, keepdim=True)
        norm_term = (v.sum(1) * h * (v * norms).sum(1)).sum()
        product_term = sum((h * v[0, j] * z[0, i]).sum() * (z[0, j] @ v[0, i]) for i in range(4) for j in range(4))
        return norm_term - product_term

    assert abs(float(released(v, z) - definition(v, z, x, h)[0])) > 0.1
    torch.testing.assert_close(released(v, v), definition(v, v, x, h)[0])


def test_distances_between_two_sets() -> None:
    left, right = torch.randn(2, 3, 4, dtype=torch.float64), torch.randn(2, 5, 4, dtype=torch.float64)
    slow = ((left.unsqueeze(2) - right.unsqueeze(1)) ** 2).sum(-1)
    torch.testing.assert_close(squared_distances(left, right), slow)
