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
    gram_distances,
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
    return by_pairs(pair_weights(scaled, scaled, h), gram_distances(z, z))


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


far = st.sampled_from([0.0, 1.0, 1e3, 1e6])
spreads = st.sampled_from([1e-3, 1.0, 1e3])


def float_points(n: int, k: int, offset: float, spread: float, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, k, generator=generator) * spread + offset


@given(sizes, far, spreads, st.sampled_from([0.0, 1e-6, 1e-3, 1.0]))
def test_near_points_keep_their_digits_in_float32(
    size: tuple[int, int, int, int], offset: float, spread: float, nearness: float
) -> None:
    """However far from the origin, and however wide the others are spread. The float64 twin reads the same float32 points."""
    _, n, k, seed = size
    left = float_points(n, k, offset, spread, seed)
    right = left.flip(0) + nearness * spread * float_points(n, k, 0.0, 1.0, seed + 1)
    exact = (left.double().unsqueeze(1) - right.double()).square().sum(-1)
    distances = squared_distances(left, right)
    torch.testing.assert_close(distances.double(), exact, rtol=1e-4, atol=0.0)
    assert (distances >= 0).all()


@given(sizes, far, st.integers(1, 4))
def test_gradients_keep_their_digits_in_float32(size: tuple[int, int, int, int], offset: float, n_left: int) -> None:
    _, n, k, seed = size
    inputs = [float_points(n_left, k, offset, 1.0, seed).requires_grad_(), float_points(n, k, offset, 1.0, seed + 1)]
    inputs[1].requires_grad_()
    twins = [tensor.detach().double().requires_grad_() for tensor in inputs]
    by = torch.randn(n_left, n, generator=torch.Generator().manual_seed(seed))
    exact = (twins[0].unsqueeze(1) - twins[1]).square().sum(-1)
    (exact * by.double()).sum().backward()
    for form in (squared_distances, gram_distances):
        for tensor in inputs:
            tensor.grad = None
        (form(*inputs) * by).sum().backward()
        for tensor, twin in zip(inputs, twins, strict=True):
            assert tensor.grad is not None
            assert twin.grad is not None
            torch.testing.assert_close(tensor.grad.double(), twin.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("form", [squared_by_pairs, squared_factored])
@pytest.mark.parametrize("n_padding", [0, 5])
@given(size=sizes, offset=st.sampled_from([10.0, 1e3]))
def test_sums_over_pairs_keep_their_digits_in_float32(
    form: object, n_padding: int, size: tuple[int, int, int, int], offset: float
) -> None:
    """The points are some 1e3 times as far from the origin as from each other; padding is at the origin."""
    assert callable(form)
    b, f, k, seed = size
    v, z, x, h = (tensor.float() for tensor in draw(b, f, k, seed))
    v, z, x = v.abs(), z + offset, torch.ones_like(x)
    padding = torch.zeros(b, n_padding, k)
    v, z = torch.cat([v, padding], 1), torch.cat([z, padding], 1)
    x = torch.cat([x, padding[..., 0]], 1)
    exact = definition(*(tensor.double() for tensor in (v, z, x, h.abs())))
    torch.testing.assert_close(form(v, z, x, h.abs()).double(), exact, rtol=1e-4, atol=1e-5)


def test_squares_that_overflow_are_left_to_the_difference() -> None:
    left = torch.tensor([[0.0, 0.0], [1e20, 0.0]])
    right = torch.tensor([[1e20, 1e13]])
    torch.testing.assert_close(squared_distances(left, right)[1, 0], torch.tensor(1e26), rtol=1e-5, atol=0.0)
    assert squared_distances(left, right)[0, 0] == torch.inf


def test_distances_of_batches_under_vmap_twice_differentiated_and_of_no_points() -> None:
    left, right = torch.randn(3, 2, 4).double().requires_grad_(), torch.randn(3, 5, 4).double().requires_grad_()
    expected = squared_distances(left, right)
    torch.testing.assert_close(torch.vmap(squared_distances)(left, right), expected)
    torch.testing.assert_close(torch.vmap(squared_distances, (0, None))(left, right[0]), squared_distances(left, right[:1]))
    assert torch.autograd.gradcheck(squared_distances, (left, right[:1]))
    assert torch.autograd.gradgradcheck(squared_distances, (left, right))
    empty = squared_distances(left[:, :0], right)
    assert empty.shape == (3, 0, 5)
    empty.sum().backward()
    assert right.grad is not None
    assert not right.grad.any()
