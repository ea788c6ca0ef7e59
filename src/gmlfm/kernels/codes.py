"""The numbers by which the kernels know losses, optimisers, activations and distances; CPU and GPU share them.

An engine looks a name up here; a name without a number has no kernel and is left to the eager engine.
"""

from __future__ import annotations

SQUARED, LOGISTIC, BPR, SOFTMAX = 0, 1, 2, 3
LOSS_CODES = {"squared": SQUARED, "logistic": LOGISTIC, "bpr": BPR, "softmax": SOFTMAX}

SGD, ADAGRAD, ADAM = 0, 1, 2
OPTIMISER_CODES = {"sgd": SGD, "adagrad": ADAGRAD, "adam": ADAM}

IDENTITY, TANH, RELU, SIGMOID = 0, 1, 2, 3
ACTIVATION_CODES = {"identity": IDENTITY, "tanh": TANH, "relu": RELU, "sigmoid": SIGMOID}

NO_DISTANCE, SQUARED_DISTANCE, COSINE = 0, 1, 2


def loss_terms(loss: int, group_size: int) -> int:
    """How many terms a group of this size adds to the mean: one for each score, each negative, or the group."""
    return {BPR: group_size - 1, SOFTMAX: 1}.get(loss, group_size)
