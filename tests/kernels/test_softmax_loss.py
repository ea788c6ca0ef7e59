"""The reference against torch: a matrix of scores, masked entries at minus infinity, cross_entropy, autograd."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from gmlfm.kernels.softmax_loss import SoftmaxColumns, SoftmaxRows, SoftmaxTargets, softmax_loss

N_ITEMS, N_COLUMNS, WIDTH = 9, 7, 5
# Items 2 and 6 are no columns; item 8 is column 0.
COLUMN_OF_ITEM = np.array([4, 1, -1, 3, 2, 5, -1, 6, 0], np.int32)
# What each of four rows had before, an item twice among them; the third had its own target, item 3, before.
HAD = [[0, 1, 1], [], [2, 3, 5, 4], [6]]
TARGETS = [7, 8, 3, 0]
STARTS, ENDS = np.array([0, 5, 0, 9, 0, 0, 0]), np.array([9, 9, 2, 9, 9, 9, 4])
MOMENTS = np.array([5, 1, 3, 9])


def rows_of(weighted: bool, timed: bool, target_columns: Any) -> SoftmaxRows:
    stops = np.cumsum([len(had) for had in HAD])
    return SoftmaxRows(
        np.random.default_rng(1).normal(size=(4, WIDTH)),
        np.array(target_columns),
        np.array([item for had in HAD for item in had], np.int32),
        stops - [len(had) for had in HAD],
        stops,
        np.array([1.0, 0.0, 2.5, 0.5]) if weighted else None,
        MOMENTS if timed else None,
    )


def columns_of(correction: float, timed: bool) -> SoftmaxColumns:
    rng = np.random.default_rng(2)
    vectors, terms = rng.normal(size=(N_COLUMNS, WIDTH)), rng.normal(size=N_COLUMNS)
    return SoftmaxColumns(vectors, terms, COLUMN_OF_ITEM, correction, STARTS if timed else None, ENDS if timed else None)


def blocked(timed: bool) -> Any:
    """(4, C): which columns are masked, the target's among them if the row had it."""
    is_masked = np.zeros((4, N_COLUMNS), bool)
    for row, had in enumerate(HAD):
        for item in had:
            if COLUMN_OF_ITEM[item] >= 0:
                is_masked[row, COLUMN_OF_ITEM[item]] = True
        if timed:
            is_masked[row] |= (MOMENTS[row] < STARTS) | (ENDS < MOMENTS[row])
    return is_masked


@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("sampled", [False, True])
def test_loss_and_gradients_are_those_of_cross_entropy(sampled: bool, weighted: bool, timed: bool) -> None:
    target_columns = [int(COLUMN_OF_ITEM[item]) for item in TARGETS]
    if sampled:
        target_columns[1] = -1
    rows, columns = rows_of(weighted, timed, target_columns), columns_of(0.7 if sampled else 0.0, timed)
    rng = np.random.default_rng(4)
    targets = SoftmaxTargets(rng.normal(size=(4, WIDTH)), rng.normal(size=4)) if sampled else None
    inputs = [rows.vectors, columns.vectors, columns.self_terms, *(targets or ())]
    tensors = [torch.tensor(array, requires_grad=True) for array in inputs]
    p, q, c = tensors[:3]
    is_masked = blocked(timed)
    for row, column in enumerate(target_columns):
        if column >= 0:
            is_masked[row, column] = sampled
    scores = (p @ q.T + c).masked_fill(torch.tensor(is_masked), -torch.inf)
    labels = torch.tensor(target_columns)
    if sampled:
        scores = torch.cat([scores + 0.7, ((p * tensors[3]).sum(1) + tensors[4]).unsqueeze(1)], 1)
        labels = torch.full((4,), N_COLUMNS)
    losses = torch.nn.functional.cross_entropy(scores, labels, reduction="none")
    weights = torch.ones(4) if rows.weights is None else torch.tensor(rows.weights)
    loss = (weights * losses).sum() / weights.sum()
    loss.backward()
    result = softmax_loss(rows, columns, targets)
    assert result.loss == pytest.approx(loss.item(), rel=1e-12)
    gradients = [array for array in result[1:] if array is not None]
    assert len(gradients) == len(tensors)
    for array, tensor in zip(gradients, tensors, strict=True):
        assert tensor.grad is not None
        np.testing.assert_allclose(array, tensor.grad.numpy(), rtol=1e-10, atol=1e-12)


def test_a_target_alone_costs_nothing() -> None:
    """In both modes, where all else is masked."""
    vectors, terms = np.ones((2, 3)), np.ones(2)
    columns = SoftmaxColumns(vectors, terms, np.array([0, 1], np.int32), 0.5)
    start, stop = np.array([0]), np.array([2])
    rows = SoftmaxRows(np.ones((1, 3)), np.array([1]), np.array([0, 1], np.int32), start, stop)
    for targets in (None, SoftmaxTargets(np.ones((1, 3)), np.ones(1))):
        result = softmax_loss(rows, columns, targets)
        assert result.loss == 0.0
        assert not any(array.any() for array in result[1:] if array is not None)


def test_rows_of_no_weight_cost_nothing() -> None:
    rows = rows_of(True, False, [0, 1, 2, 3])
    assert rows.weights is not None
    result = softmax_loss(rows._replace(weights=np.zeros(4)), columns_of(0.0, False))
    assert result.loss == 0.0
    assert not result.row_grads.any()
