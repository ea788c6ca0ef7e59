"""Objectives on groups of scores: (B, G) scores and labels, the positive first. Each returns the mean over the batch."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

Objective = Callable[[Tensor, Tensor, Tensor | None], Tensor]


def squared(scores: Tensor, labels: Tensor, weights: Tensor | None) -> Tensor:
    """(y-hat - y)^2."""
    return _mean((scores - labels).square(), weights)


def logistic(scores: Tensor, labels: Tensor, weights: Tensor | None) -> Tensor:
    """log(1 + exp(-y y-hat)), y in {-1, +1}."""
    return _mean(functional.softplus(-labels * scores), weights)


def bpr(scores: Tensor, labels: Tensor, weights: Tensor | None) -> Tensor:
    """-log sigmoid(y-hat_+ - y-hat_-) for each negative."""
    return _mean(functional.softplus(scores[:, 1:] - scores[:, :1]), weights)


def softmax(scores: Tensor, labels: Tensor, weights: Tensor | None) -> Tensor:
    """-log of the positive's share in the softmax over its group."""
    return _mean(-torch.log_softmax(scores, dim=1)[:, :1], weights)


OBJECTIVES: dict[str, Objective] = {"squared": squared, "logistic": logistic, "bpr": bpr, "softmax": softmax}
GROUPED = ("bpr", "softmax")  # these compare a positive with its negatives, so they need some


def _mean(losses: Tensor, weights: Tensor | None) -> Tensor:
    if weights is None:
        return losses.mean()
    return (losses * weights.unsqueeze(1)).sum() / (weights.sum() * losses.shape[1])
