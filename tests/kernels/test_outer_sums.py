from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gmlfm.kernels.outer_sums import by_products, outer_sums, side_sums


def slow(rows: np.ndarray, k: int, ids: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A loop over entities and their attributes, in float64."""
    linear = np.zeros(len(ids))
    sums = np.zeros((len(ids), rows.shape[1] - k, k))
    for n in range(len(ids)):
        for row, amount in zip(rows[ids[n]].astype(float), x[n].astype(float), strict=True):
            linear[n] += amount * row[0]
            sums[n] += amount * np.outer([1.0, *row[1 + k :]], row[1 : 1 + k])
    return linear, sums.reshape(len(ids), (rows.shape[1] - k) * k)


@given(
    k=st.integers(1, 20),
    rank=st.integers(0, 9),
    n=st.integers(0, 700),
    width=st.integers(0, 4),
    seed=st.integers(0, 99),
    threads=st.integers(1, 2),
)
def test_sums_and_gradients_are_those_of_loops_and_of_products(
    k: int, rank: int, n: int, width: int, seed: int, threads: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(30, 1 + k + rank, generator=generator, requires_grad=True)
    ids = torch.randint(0, 30, (n, width), generator=generator)
    x = torch.randn(n, width, generator=generator) * (torch.rand(n, width, generator=generator) < 0.8)
    torch.set_num_threads(threads)
    try:
        fast = outer_sums(rows, k, ids, x)
        expected = slow(rows.detach().numpy(), k, ids.numpy(), x.numpy())
        for result, loop in zip(fast, expected, strict=True):
            np.testing.assert_allclose(result.detach().numpy(), loop, rtol=1e-4, atol=1e-4)
        grads = [torch.randn(result.shape, generator=generator) for result in fast]
        (gradient,) = torch.autograd.grad(fast, rows, grads)
    finally:
        torch.set_num_threads(1)
    double = rows.detach().double().requires_grad_()
    results = by_products(double, k, ids, x.double())
    (expected_gradient,) = torch.autograd.grad(results, double, [grad.double() for grad in grads])
    torch.testing.assert_close(gradient.double(), expected_gradient, rtol=1e-4, atol=1e-4)


def test_threads_do_not_change_the_numbers() -> None:
    rows = torch.randn(400, 1 + 16 + 4, requires_grad=True)
    ids, x = torch.randint(0, 400, (3000, 3)), torch.rand(3000, 3)
    gradients = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        linear, vectors = outer_sums(rows, 16, ids, x)
        gradients.append(torch.autograd.grad(linear.sum() + vectors.square().sum(), rows)[0])
    torch.set_num_threads(1)
    assert torch.equal(*gradients)


def test_sides_of_any_shape_and_double_precision() -> None:
    rows = torch.randn(9, 1 + 2 + 1, dtype=torch.float64)
    ids, x = torch.randint(0, 9, (4, 5, 3)), torch.rand(4, 5, 3, dtype=torch.float64)
    linear, vectors = outer_sums(rows, 2, ids, x)
    assert linear.shape == (4, 5)
    assert vectors.shape == (4, 5, 4)
    flat = outer_sums(rows, 2, ids.view(20, 3), x.view(20, 3))
    torch.testing.assert_close(vectors.view(20, 4), flat[1])
    with pytest.raises((IndexError, RuntimeError)):
        by_products(rows, 2, torch.full((1, 1), 9), torch.ones(1, 1, dtype=torch.float64))


@given(k=st.integers(1, 20), n=st.integers(0, 700), width=st.integers(0, 4), seed=st.integers(0, 99))
def test_products_within_an_entity_and_their_gradients_are_those_of_loops(k: int, n: int, width: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(30, 1 + k, generator=generator, requires_grad=True)
    ids = torch.randint(0, 30, (n, width), generator=generator)  # some rows twice in an entity
    x = torch.randn(n, width, generator=generator) * (torch.rand(n, width, generator=generator) < 0.8)
    fast = side_sums(rows, k, ids, x)
    for result, other in zip(fast, outer_sums(rows, k, ids, x), strict=False):
        torch.testing.assert_close(result, other)
    values = rows.detach().numpy().astype(float)[:, 1:]
    for entity in range(min(n, 40)):
        products = [
            float(x[entity, f] * x[entity, g]) * values[ids[entity, f]] @ values[ids[entity, g]]
            for f in range(width)
            for g in range(f + 1, width)
        ]
        assert float(fast[2].detach()[entity]) == pytest.approx(sum(products), rel=1e-4, abs=1e-3)
    grads = [torch.randn(result.shape, generator=generator) for result in fast]
    (gradient,) = torch.autograd.grad(fast, rows, grads)
    double = rows.detach().double().requires_grad_()
    slow_sums = side_sums(double, k, ids, x.double())
    (expected,) = torch.autograd.grad(slow_sums, double, [grad.double() for grad in grads])
    torch.testing.assert_close(gradient.double(), expected, rtol=1e-4, atol=1e-3)
