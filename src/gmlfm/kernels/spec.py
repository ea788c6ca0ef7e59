"""What a compiled engine must know of a model to take its training steps. An engine that does not know a spec's class leaves
the model to the eager engine."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn


@dataclass(frozen=True)
class KernelSpec:
    """parameters: all dense parameters of the model, in the order in which the kernel has them packed.

    ids_only: of each side only the id, its first attribute, counts, and at x = 1 whatever its x.
    """

    k: int
    parameters: tuple[nn.Parameter, ...]
    ids_only: bool = False


@dataclass(frozen=True)
class SumsSpec(KernelSpec):
    r"""Scores by sums of rows: FM, MF (rows w, v) and, translated, TransFM (rows w, v, t). Packed: the global bias.

    linear: the w count. user_l2, item_l2: what the objective adds for the squared factors of each instance.
    """

    translated: bool = False
    linear: bool = True
    user_l2: float = 0.0
    item_l2: float = 0.0


@dataclass(frozen=True)
class PairsSpec(KernelSpec):
    r"""GML-FM: each pair a weight h.(v_i * v_j) times a distance of z = layers(v); rows w, v.

    Packed: the global bias, h, the layers' matrices (K x K each), then their biases where has_biases.
    activation: identity, tanh, relu or sigmoid. unit: z is scaled to unit length. cosine: the distance is the inner product of
    unit vectors; otherwise the squared distance.
    """

    n_layers: int = 0
    activation: str = "identity"
    has_biases: bool = False
    unit: bool = False
    cosine: bool = False


@dataclass(frozen=True)
class GatedSpec(KernelSpec):
    r"""Gated GML-FM: each pair a weight h.(v_i * v_j) times 1 + g cos(z_i, z_j) with z = L v, L of R x K; rows w, v.

    Packed: the global bias, h, L, then g and what follows it, which steps without histories leave alone.
    """

    rank: int = 1
