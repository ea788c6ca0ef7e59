"""Losses of one group and their gradients at each score. The twin of gmlfm.training.objectives, differentiated by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gmlfm.kernels.codes import BPR, LOGISTIC, SOFTMAX, SQUARED
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
def group_loss(loss: int, scores: Floats, labels: Floats, group: int, score_grads: Floats) -> Any:
    """The sum over the terms of a group, whose labels are a row of these; score_grads become its derivatives."""
    size = scores.size
    total = np.float32(0.0)
    if loss == SQUARED:
        for g in range(size):
            off = scores[g] - labels[group, g]
            total += off * off
            score_grads[g] = off + off
    elif loss == LOGISTIC:
        for g in range(size):
            margin = -labels[group, g] * scores[g]
            total += soft_plus(margin)
            score_grads[g] = -labels[group, g] * sigmoid(margin)
    elif loss == BPR:
        score_grads[0] = np.float32(0.0)
        for g in range(1, size):
            margin = scores[g] - scores[0]
            total += soft_plus(margin)
            score_grads[g] = sigmoid(margin)
            score_grads[0] -= score_grads[g]
    else:
        highest = scores[0]
        for g in range(1, size):
            highest = max(highest, scores[g])
        normaliser = np.float32(0.0)
        for g in range(size):
            score_grads[g] = np.float32(math.exp(scores[g] - highest))
            normaliser += score_grads[g]
        total = np.float32(math.log(normaliser)) + highest - scores[0]
        for g in range(size):
            score_grads[g] /= normaliser
        score_grads[0] -= _ONE
    return total


@compiled
def term_share(loss: int, groups: Groups, start: int, stop: int) -> Any:
    """The share of one term of weight 1 in the mean over the groups start to stop."""
    size = groups.labels.shape[1]
    terms = size - 1 if loss == BPR else 1 if loss == SOFTMAX else size
    weight = np.float32(0.0)
    if groups.weights.size:
        for group in range(start, stop):
            weight += groups.weights[group]
    else:
        weight = np.float32(stop - start)
    return _ONE / (weight * np.float32(terms))
