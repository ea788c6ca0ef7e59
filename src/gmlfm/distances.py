"""Distances between attributes: a transform T with z = T(v), and a measure of two z. Handed to whoever needs one."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor, nn

from gmlfm.errors import OptionError, did_you_mean
from gmlfm.kernels.second_order import gram_distances, squared_distances

Start = Literal["normal", "orthogonal"]
ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU, "sigmoid": nn.Sigmoid, "identity": nn.Identity}
MEASURES = ("squared", "euclidean", "manhattan", "chebyshev", "minkowski", "cosine")
_SMALLEST = 1e-12


class Transform(nn.Module):
    """z = T(v), applied once to each distinct row: (..., K) -> (..., K). The identity itself.

    unit: z is scaled to unit length, which bounds its squared distances by 4; a zero vector stays zero.
    """

    def __init__(self, unit: bool = False) -> None:
        super().__init__()
        self.unit = unit

    def forward(self, v: Tensor) -> Tensor:
        z = self.transformed(v)
        return directions(z) if self.unit else z

    def transformed(self, v: Tensor) -> Tensor:
        return v

    def packed(self) -> tuple[list[nn.Parameter], list[nn.Parameter], str]:
        """Its matrices, its biases and the activation's name, for kernels that apply it themselves."""
        return [], [], "identity"


class Linear(Transform):
    """z = L v: the Mahalanobis distance with M = L^T L, positive semi-definite by construction."""

    def __init__(self, n_factors: int, unit: bool = False, start: Start = "normal") -> None:
        super().__init__(unit)
        self.matrix = nn.Parameter(_square(n_factors, start))

    def transformed(self, v: Tensor) -> Tensor:
        return v @ self.matrix.T

    def packed(self) -> tuple[list[nn.Parameter], list[nn.Parameter], str]:
        return [self.matrix], [], "identity"

    def metric(self) -> Tensor:
        """M."""
        return self.matrix.T @ self.matrix


class Layers(Transform):
    """z = sigma_L(W_L ... sigma_1(W_1 v + b_1) ... + b_L), dropout between the layers."""

    def __init__(
        self,
        n_factors: int,
        n_layers: int = 1,
        activation: str = "tanh",
        dropout: float = 0.0,
        unit: bool = False,
        start: Start = "normal",
    ) -> None:
        super().__init__(unit)
        if activation not in ACTIVATIONS:
            raise OptionError(f"activation is '{activation}'{did_you_mean(activation, ACTIVATIONS)}")
        if not 0 <= n_layers <= 3:
            raise OptionError(f"layers is {n_layers}; expected 0 to 3.")
        if not 0 <= dropout < 1:
            raise OptionError(f"dropout is {dropout}; expected at least 0 and below 1.")
        modules: list[nn.Module] = []
        for index in range(n_layers):
            if index and dropout:
                modules.append(nn.Dropout(dropout))
            layer = nn.Linear(n_factors, n_factors)
            with torch.no_grad():
                layer.weight.copy_(_square(n_factors, start))
                if start == "normal":
                    layer.bias.normal_(0.0, 0.01)
                else:
                    layer.bias.zero_()
            modules += [layer, ACTIVATIONS[activation]()]
        self.layers = nn.Sequential(*modules)
        self._activation = activation if n_layers else "identity"

    def packed(self) -> tuple[list[nn.Parameter], list[nn.Parameter], str]:
        linear: list[Any] = [layer for layer in self.layers if isinstance(layer, nn.Linear)]
        return [layer.weight for layer in linear], [layer.bias for layer in linear], self._activation

    def transformed(self, v: Tensor) -> Tensor:
        z: Tensor = self.layers(v)
        return z


class Measure:
    """The distance of two transformed attributes: (..., F, K), (..., G, K) -> (..., F, G)."""

    def __init__(self, name: str = "squared", p: float = 2.0) -> None:
        if name not in MEASURES:
            raise OptionError(f"distance is '{name}'{did_you_mean(name, MEASURES)}")
        if name == "minkowski" and not p >= 1:
            raise OptionError(f"p is {p}; Minkowski's distance needs p of 1 or more.")
        self.name = name
        self.p = p

    @property
    def decomposes(self) -> bool:
        """Whether the double sum factors into sums over each attribute: the squared distance and the cosine do."""
        return self.name in ("squared", "cosine")

    def factor(self, z: Tensor, *, left: bool) -> Tensor:
        """Where the measure is an inner product of one vector of each side, that vector: (..., K) -> (..., K or K + 2).

        |a - b|^2 = (-2a, 1, |a|^2) . (b, |b|^2, 1), which keeps most digits with an origin amid the points; the cosine is the
        inner product of the directions.
        """
        if self.name == "cosine":
            return directions(z)
        squares = (z * z).sum(-1, keepdim=True)
        ones = torch.ones_like(squares)
        return torch.cat([-2.0 * z, ones, squares] if left else [z, squares, ones], dim=-1)

    def for_sums(self, left: Tensor, right: Tensor) -> Tensor:
        """As exact as a sum over all of these pairs needs them, and faster where pairs coincide, as padding does."""
        return gram_distances(left, right) if self.name == "squared" else self(left, right)

    def __call__(self, left: Tensor, right: Tensor) -> Tensor:
        if self.name == "squared":
            return squared_distances(left, right)
        if self.name == "cosine":
            return directions(left) @ directions(right).transpose(-1, -2)
        p = {"manhattan": 1.0, "euclidean": 2.0, "chebyshev": math.inf}.get(self.name, self.p)
        return _norms((left.unsqueeze(-2) - right.unsqueeze(-3)).abs(), p)


def _norms(sizes: Tensor, p: float) -> Tensor:
    r"""\|d\|_p = m \big( \sum_i (|d_i| / m)^p \big)^{1/p}, m the largest |d_i|: sizes |d| (..., K) -> (...).

    Divided by m no power overflows, and the sum of the powers is 1 at least, so it does not vanish either.
    """
    if p == 1.0:
        return sizes.sum(-1)
    if math.isinf(p):
        return sizes.amax(-1)
    # The norm is the same for every m, so no gradient goes through it.
    largest = sizes.detach().amax(-1)
    # At coinciding points the root has a corner: the distance is 0 and its gradient is set to 0.
    coincides = largest == 0
    scale = largest.masked_fill(coincides, 1.0)
    powers = (sizes / scale.unsqueeze(-1)).pow(p).sum(-1)
    return torch.where(coincides, 0.0, scale * powers.masked_fill(coincides, 1.0).pow(1.0 / p))


def directions(z: Tensor) -> Tensor:
    """z at unit length, the zero vector left at zero: the cosine is the inner product of these."""
    squares = (z * z).sum(-1, keepdim=True)
    # The root of a clamped square has no infinite gradient at the zero vector.
    return z / squares.clamp_min(_SMALLEST).sqrt()


def _square(n_factors: int, start: Start) -> Tensor:
    if start == "orthogonal":
        return nn.init.orthogonal_(torch.empty(n_factors, n_factors))
    if start == "normal":
        return torch.empty(n_factors, n_factors).normal_(0.0, 0.01)
    raise OptionError(f"start is '{start}'; expected normal or orthogonal.")
