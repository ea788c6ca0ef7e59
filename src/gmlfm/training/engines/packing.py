"""What the compiled engines on CPU and GPU share."""

from __future__ import annotations

import logging

import numpy as np
import numpy.typing as npt

from gmlfm.kernels.codes import ACTIVATION_CODES
from gmlfm.kernels.spec import KernelSpec, PairsSpec

_MOST_COUNTED = 20_000  # after so many updates Adam's bias corrections are 1 in float32


class NoKernelError(Exception):
    """Why no compiled engine can train a model; level: how loud to log it where the eager engine does instead."""

    def __init__(self, reason: str, level: int = logging.INFO) -> None:
        super().__init__(reason)
        self.level = level


def check_spec(spec: KernelSpec, classes: tuple[type[KernelSpec], ...]) -> None:
    """Refuse a spec whose exact class has no kernel: a subclass may mean something else."""
    if type(spec) not in classes:
        raise NoKernelError(f"a {type(spec).__name__} has no kernel")
    if isinstance(spec, PairsSpec) and spec.activation not in ACTIVATION_CODES:
        raise NoKernelError(f"the activation '{spec.activation}' has no kernel")


def bias_corrections() -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Adam's bias corrections by count, from 0: 1 / (1 - 0.9^c) and 1 / (1 - 0.999^c)."""
    counts = np.arange(1, _MOST_COUNTED)
    first_correction, second_correction = (
        np.concatenate([[1.0], 1.0 / (1.0 - beta**counts)]).astype(np.float32) for beta in (0.9, 0.999)
    )
    return first_correction, second_correction


def mean_loss(losses: npt.NDArray[np.float32], n_groups: int, groups_per_step: int) -> float:
    """Over all groups: the last step may have had fewer than the others. No number where one of the losses is none."""
    if not np.isfinite(losses).all():
        return float("nan")
    counts = np.full(len(losses), groups_per_step)
    counts[-1] = n_groups - groups_per_step * (len(losses) - 1)
    return float(np.average(losses.astype(np.float64), weights=counts))
