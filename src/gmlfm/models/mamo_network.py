"""MAMO's networks and memories as functions of their weights, which are named tensors: what adapts must not share them."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from gmlfm.models.base import Floats

Weights = dict[str, Tensor]
Shapes = dict[str, tuple[int, ...]]
BIASES = "memory.bias."


def layer_shapes(name: str, n_layers: int, n_inputs: int, k: int) -> Shapes:
    """Of some layers of k units."""
    shapes: Shapes = {}
    for number in range(n_layers):
        shapes |= {f"{name}.{number}.weight": (k, n_inputs if number == 0 else k), f"{name}.{number}.bias": (k,)}
    return shapes


def through_layers(weights: Weights, name: str, n_layers: int, x: Tensor) -> Tensor:
    for number in range(n_layers):
        x = torch.relu(functional.linear(x, weights[f"{name}.{number}.weight"], weights[f"{name}.{number}.bias"]))
    return x


def initial_weights(shapes: Shapes, k: int, n_fields: int, n_slots: int, levels: Floats, labels: Floats, seed: int) -> Weights:
    """At the start of training; they depend on the seed, shapes and labels alone. n_fields: of the wider side."""
    spread = float(np.std(labels, dtype=np.float64))
    generator = torch.Generator().manual_seed(seed)
    weights = {name: _drawn(name, shape, k, n_fields, n_slots, generator) for name, shape in shapes.items()}
    weights["label.mean"] = torch.tensor(float(np.mean(labels, dtype=np.float64)), dtype=torch.float32)
    weights["label.spread"] = torch.tensor(spread if spread > 0.0 else 1.0, dtype=torch.float32)
    weights["label.levels"] = torch.from_numpy(levels.astype(np.float32))
    return weights


def _drawn(name: str, shape: tuple[int, ...], k: int, n_fields: int, n_slots: int, generator: torch.Generator) -> Tensor:
    """Normal, of the deviation that keeps lengths through each layer; biases and their memory start at 0."""
    if name.endswith("bias") or name.startswith(BIASES):
        return torch.zeros(shape)
    deviation = {
        "embedding": 1.0 / sqrt(k * n_fields),
        "head.out.weight": 1.0 / sqrt(k),
        "task": 1.0 / sqrt(2 * k),
        # Reading averages the slots, which are drawn apart.
        "memory.task": sqrt(n_slots / (2 * k)),
        "memory.keys": 1.0,
    }.get(name, sqrt(2.0 / shape[0]))
    return torch.empty(shape).normal_(0.0, deviation, generator=generator)


def checked_weights(state: Weights, shapes: Shapes) -> Weights:
    """Copies of the state's tensors, whose names and shapes must be the expected ones."""
    if surplus := sorted(set(state) - set(shapes)):
        raise ValueError(f"'{surplus[0]}' is no weight of this model.")
    for name, shape in shapes.items():
        if tuple(state[name].shape) != shape:
            raise ValueError(f"'{name}' has the shape {tuple(state[name].shape)}; expected {shape}.")
    return {name: state[name].to("cpu", torch.float32, copy=True).contiguous() for name in shapes}


def attention(profile: Tensor, keys: Tensor | None) -> Tensor | None:
    """softmax over the slots of cos(p, key): profile (D,), keys (slots, D) -> (slots,); none without a memory."""
    if keys is None:
        return None
    return torch.softmax(functional.cosine_similarity(profile.unsqueeze(0), keys, dim=1), dim=0)


def recalled(memory: Tensor, attended: Tensor) -> Tensor:
    """a^T M: memory (slots, ...), attended (slots,) -> (...)."""
    value: Tensor = torch.tensordot(attended, memory, dims=1)
    return value


def rewritten(memory: Tensor, attended: Tensor, value: Tensor, share: float) -> Tensor:
    """share (a x value) + (1 - share) M: memory (slots, ...), value (...)."""
    written: Tensor = share * torch.tensordot(attended, value, dims=0) + (1.0 - share) * memory
    return written


@dataclass(frozen=True)
class Network:
    """The recommendation head g over the user network's e_u and given e_i. classes: its outputs are levels of the labels."""

    k: int
    n_layers: int
    classes: bool

    def outputs(self, local: Weights, profile: Tensor, items: Tensor) -> Tensor:
        """g(M_u [e_u; e_i]): profile (P K,), items (I, K) -> (I, 1), or (I, levels) for classes."""
        user = through_layers(local, "user", self.n_layers, profile)
        of_user, of_item = local["task"][:, : self.k], local["task"][:, self.k :]
        hidden = through_layers(local, "head", self.n_layers, items @ of_item.T + of_user @ user)
        return functional.linear(hidden, local["head.out.weight"], local["head.out.bias"])

    def scores(self, local: Weights, profile: Tensor, items: Tensor, trained: Weights) -> Tensor:
        """(I,) in the labels' own scale, which is among the trained weights."""
        outputs = self.outputs(local, profile, items)
        if self.classes:
            return torch.softmax(outputs, dim=1) @ trained["label.levels"]
        return trained["label.mean"] + trained["label.spread"] * outputs.squeeze(1)

    def targets(self, labels: Floats, trained: Weights) -> Tensor:
        """Standardised labels, or for classes the number of the nearest level."""
        values = torch.from_numpy(labels.astype(np.float32))
        if self.classes:
            return (values.unsqueeze(1) - trained["label.levels"]).abs().argmin(dim=1)
        return (values - trained["label.mean"]) / trained["label.spread"]

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(outputs, targets) if self.classes else functional.mse_loss(outputs.squeeze(1), targets)


def leaf(tensor: Tensor) -> Tensor:
    return tensor.detach().requires_grad_()
