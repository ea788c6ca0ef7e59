"""What every model answers.

A model's parameters are of two kinds: a table with a row for each attribute, which the trainer owns, of which a model only
ever sees the distinct rows of a batch; and the dense parameters, which are the module's own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Attributes:
    """Attributes of some users or items as places in the rows at hand: ids (..., F) int64, x (..., F)."""

    ids: Tensor
    x: Tensor


@dataclass(frozen=True)
class SideScores:
    """One side of a score that decomposes: score(u, i) = own_u + own_i + vector_u . vector_i."""

    own: Tensor
    vector: Tensor


class Model(nn.Module, ABC):
    """Scores of (user with context, item) pairs; higher is better."""

    decomposes: bool = False

    @property
    @abstractmethod
    def row_width(self) -> int:
        """Numbers a row of the table holds."""

    @abstractmethod
    def initial_rows(self, n: int, generator: torch.Generator) -> Tensor:
        """(n, row_width) at the start of training."""

    @abstractmethod
    def scores(self, rows: Tensor, asking: Attributes, answering: Attributes) -> Tensor:
        """rows: (U, row_width); asking: users with context, (B, F); answering: items, (B, G, F'). Returns (B, G)."""

    def sides(self, rows: Tensor, attributes: Attributes, *, asking: bool) -> SideScores:
        """One side precomputed, where the score decomposes: own (N,), vector (N, D); the global bias is the user's."""
        raise NotImplementedError(f"{type(self).__name__} does not decompose")  # pragma: no cover - guarded by decomposes
