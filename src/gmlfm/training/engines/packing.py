"""What the fast steps on CPU and GPU share: how GML-FM's dense parameters lie in a line, and the numbers of choices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import nn

from gmlfm.distances import ACTIVATIONS as MODULES
from gmlfm.distances import Layers, Linear
from gmlfm.models.gmlfm import GMLFM

OBJECTIVES = ("squared", "logistic", "bpr", "softmax")
OPTIMISERS = ("sgd", "adagrad", "adam")
ACTIVATIONS = ("identity", "tanh", "relu", "sigmoid")
_MOST_COUNTED = 20_000  # after so many updates Adam's corrections are 1 in float32


@dataclass(frozen=True)
class GmlLine:
    """The line holds the global bias, h, the layers' matrices, then their biases.

    cannot: why the fast steps cannot take this model; '' where they can.
    """

    parameters: list[nn.Parameter]
    layers: int
    activation: int
    biased: bool
    unit: bool
    cosine: bool
    cannot: str


def gml_line(model: GMLFM) -> GmlLine:
    transform, activation = model.transform, "identity"
    matrices: list[Any] = []
    biases: list[Any] = []
    if isinstance(transform, Linear):
        matrices = [transform.matrix]
    elif isinstance(transform, Layers):
        linear = [one for one in transform.layers if isinstance(one, nn.Linear)]
        matrices, biases = [one.weight for one in linear], [one.bias for one in linear]
        used = {type(one) for one in transform.layers}
        activation = next((name for name, kind in MODULES.items() if kind in used), "identity")
    cosine = model.measure.name == "cosine"
    parameters = [model.bias, *([] if model.h is None else [model.h]), *matrices, *biases]
    return GmlLine(
        parameters,
        len(matrices),
        ACTIVATIONS.index(activation),
        bool(biases),
        transform.unit or cosine,
        cosine,
        _cannot(model),
    )


def _cannot(model: GMLFM) -> str:
    if model.h is None or model.measure.name not in ("squared", "cosine"):
        return "only the squared distance and the cosine, with weights, have compiled steps"
    if any(isinstance(one, nn.Dropout) for one in model.transform.modules()):
        return "dropout has no compiled steps"
    if model.form == "factored":
        return "the factored form has no compiled steps"
    return ""


def fading() -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Adam's corrections by count, from 0: 1 / (1 - 0.9^c) and 1 / (1 - 0.999^c)."""
    counts = np.arange(1, _MOST_COUNTED)
    first, second = (np.concatenate([[1.0], 1.0 / (1.0 - kept**counts)]).astype(np.float32) for kept in (0.9, 0.999))
    return first, second


def mean_loss(losses: npt.NDArray[np.float32], n_groups: int, size: int) -> float:
    """Over all groups: the last step may have had fewer than `size`. No number where one of the losses is none."""
    if not np.isfinite(losses).all():
        return float("nan")
    counts = np.full(len(losses), size)
    counts[-1] = n_groups - size * (len(losses) - 1)
    return float(np.average(losses.astype(np.float64), weights=counts))
