from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from gmlfm.distances import ACTIVATIONS, MEASURES, Layers, Linear, Measure, Transform
from gmlfm.errors import OptionError


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    """Weights are drawn from torch's generator: seeded for each test, and as before after it."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def slow(name: str, p: float, a: Tensor, b: Tensor) -> float:
    differences = [abs(float(left - right)) for left, right in zip(a, b, strict=True)]
    if name == "squared":
        return sum(difference * difference for difference in differences)
    if name == "manhattan":
        return sum(differences)
    if name == "chebyshev":
        return max(differences)
    if name == "cosine":
        return float(a @ b) / (math.sqrt(float(a @ a)) * math.sqrt(float(b @ b)))
    power = 2.0 if name == "euclidean" else p
    return float(sum(difference**power for difference in differences) ** (1 / power))


@pytest.mark.parametrize("name", MEASURES)
@pytest.mark.parametrize("p", [1.0, 3.0])
def test_each_measure_is_its_definition(name: str, p: float) -> None:
    left, right = torch.randn(3, 5, dtype=torch.float64), torch.randn(4, 5, dtype=torch.float64)
    distances = Measure(name, p)(left, right)
    for i in range(3):
        for j in range(4):
            assert float(distances[i, j]) == pytest.approx(slow(name, p, left[i], right[j]), rel=1e-9)


@pytest.mark.parametrize("name", MEASURES)
def test_gradients_are_right_and_finite_even_where_points_coincide(name: str) -> None:
    measure = Measure(name, 3.0)
    left = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    right = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(measure, (left, right))
    same = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)
    measure(same, same).sum().backward()
    assert same.grad is not None
    assert torch.isfinite(same.grad).all()
    zero = torch.zeros(2, 4, dtype=torch.float64, requires_grad=True)
    measure(zero, zero).sum().backward()
    assert zero.grad is not None
    assert torch.isfinite(zero.grad).all()


@given(
    st.sampled_from(["euclidean", "minkowski"]),
    st.sampled_from([1.5, 2.0, 3.0, 50.0, math.inf]),
    st.sampled_from([1e-30, 1e-6, 1.0, 1e6, 1e30]),
    st.integers(1, 5),
    st.integers(0, 10_000),
)
def test_powers_neither_vanish_nor_overflow(name: str, p: float, size: float, k: int, seed: int) -> None:
    """In float32, with gradients: both are the same at every scale, but for the scale itself."""
    rng = np.random.default_rng(seed)
    left, right = (torch.from_numpy(rng.normal(size=(n, k)) * size).float().requires_grad_() for n in (2, 3))
    distances = Measure(name, p)(left, right)
    distances.sum().backward()
    a, b = (side.detach().double().numpy() / size for side in (left, right))
    power = 2.0 if name == "euclidean" else p
    off = a[:, None] - b[None]
    expected = np.linalg.norm(off, power, axis=-1)
    np.testing.assert_allclose(distances.detach().double() / size, expected, rtol=1e-5)
    if math.isfinite(power):
        ratios = np.abs(off) / expected[..., None]
        np.testing.assert_allclose(left.grad, (np.sign(off) * ratios ** (power - 1)).sum(1), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("p", [2.0, 3.0, 50.0])
def test_minkowski_is_flat_where_points_coincide_and_nowhere_else(p: float) -> None:
    same = torch.full((1, 3), 7.0).requires_grad_()
    Measure("minkowski", p)(same, same.detach()).sum().backward()
    assert same.grad is not None
    assert same.grad.tolist() == [[0.0, 0.0, 0.0]]
    near = torch.tensor([[1e-30, 0.0, 0.0]]).requires_grad_()
    distance = Measure("minkowski", p)(near, torch.zeros(1, 3))
    distance.sum().backward()
    assert near.grad is not None
    assert float(distance.detach()) == pytest.approx(1e-30, rel=1e-6)
    torch.testing.assert_close(near.grad, torch.tensor([[1.0, 0.0, 0.0]]))
    left, right = (torch.randn(2, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradcheck(Measure("minkowski", p), (left, right))


def test_mahalanobis_is_positive_semi_definite_and_the_identity_recovers_euclid() -> None:
    transform = Linear(4)
    with torch.no_grad():
        transform.matrix.copy_(torch.randn(4, 4))
    assert torch.linalg.eigvalsh(transform.metric()).min() >= -1e-5
    a, b = torch.randn(1, 4), torch.randn(1, 4)
    expected = (a - b) @ transform.metric() @ (a - b).T
    torch.testing.assert_close(Measure()(transform(a), transform(b)), expected, rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        transform.matrix.copy_(torch.eye(4))
    torch.testing.assert_close(Measure()(transform(a), transform(b)), Measure()(a, b))
    torch.testing.assert_close(Layers(4, 0)(a), a)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("layers", [0, 1, 2, 3])
def test_layers_are_the_printed_composition(activation: str, layers: int) -> None:
    transform = Layers(3, layers, activation, dropout=0.4).eval()
    v = torch.randn(5, 3)
    z = v
    for module in transform.layers:
        if isinstance(module, torch.nn.Linear):
            z = ACTIVATIONS[activation]()(z @ module.weight.T + module.bias)
    torch.testing.assert_close(transform(v), z)
    assert sum(isinstance(module, torch.nn.Dropout) for module in transform.layers) == max(layers - 1, 0)


def test_at_unit_length_a_zero_vector_stays_zero_and_its_gradient_is_finite() -> None:
    transform = Transform(unit=True)
    v = torch.stack([torch.zeros(3), torch.tensor([3.0, 4.0, 0.0])]).requires_grad_()
    z = transform(v)
    torch.testing.assert_close(z, torch.tensor([[0.0, 0.0, 0.0], [0.6, 0.8, 0.0]]))
    z.sum().backward()
    assert v.grad is not None
    assert torch.isfinite(v.grad).all()


def test_an_orthogonal_start_keeps_lengths() -> None:
    matrix = Linear(16, start="orthogonal").matrix
    torch.testing.assert_close(matrix @ matrix.T, torch.eye(16), atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Measure("euclid"), "did you mean 'euclidean'"),
        (lambda: Measure("minkowski", 0.5), "needs p of 1 or more"),
        (lambda: Layers(2, 4), "layers is 4; expected 0 to 3"),
        (lambda: Layers(2, 1, "tan"), "did you mean 'tanh'"),
        (lambda: Layers(2, 2, dropout=1.0), "dropout is 1.0"),
        (lambda: Linear(2, start="uniform"), "expected normal or orthogonal"),  # type: ignore[arg-type]
    ],
)
def test_wrong_options_are_refused(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(OptionError, match=message):
        make()
