"""Objectives on one group: the loss and its slope at each score. The same as gmlfm.training.objectives, by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gmlfm.kernels.cpu.arrays import Floats, Groups
from gmlfm.kernels.cpu.jit import compiled

_ONE = np.float32(1.0)


@compiled
def soft_plus(x: Any) -> Any:
    """log(1 + exp x)."""
    return max(x, np.float32(0.0)) + np.float32(math.log1p(math.exp(-abs(x))))


@compiled
def sigmoid(x: Any) -> Any:
    small = np.float32(math.exp(-abs(x)))
    return _ONE / (_ONE + small) if x >= 0 else small / (_ONE + small)


@compiled
def group_loss(objective: int, scores: Floats, labels: Floats, at: int, slopes: Floats) -> Any:
    """The sum over the group's terms; slopes are its derivatives; labels: row `at`. 0 squared, 1 logistic, 2 bpr, 3 softmax."""
    size = scores.size
    total = np.float32(0.0)
    if objective == 0:
        for g in range(size):
            off = scores[g] - labels[at, g]
            total += off * off
            slopes[g] = off + off
    elif objective == 1:
        for g in range(size):
            margin = -labels[at, g] * scores[g]
            total += soft_plus(margin)
            slopes[g] = -labels[at, g] * sigmoid(margin)
    elif objective == 2:
        slopes[0] = np.float32(0.0)
        for g in range(1, size):
            margin = scores[g] - scores[0]
            total += soft_plus(margin)
            slopes[g] = sigmoid(margin)
            slopes[0] -= slopes[g]
    else:
        highest = scores[0]
        for g in range(1, size):
            highest = max(highest, scores[g])
        together = np.float32(0.0)
        for g in range(size):
            slopes[g] = np.float32(math.exp(scores[g] - highest))
            together += slopes[g]
        total = np.float32(math.log(together)) + highest - scores[0]
        for g in range(size):
            slopes[g] /= together
        slopes[0] -= _ONE
    return total


@compiled
def share_of_one(objective: int, groups: Groups, start: int, stop: int) -> Any:
    """What one term of weight 1 counts in the mean over the groups start to stop."""
    size = groups.labels.shape[1]
    terms = size - 1 if objective == 2 else 1 if objective == 3 else size
    weight = np.float32(0.0)
    if groups.weights.size:
        for at in range(start, stop):
            weight += groups.weights[at]
    else:
        weight = np.float32(stop - start)
    return _ONE / (weight * np.float32(terms))
