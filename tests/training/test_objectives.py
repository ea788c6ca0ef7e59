from __future__ import annotations

import math

import pytest
import torch

from gmlfm.training.objectives import OBJECTIVES

SCORES = torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.0, 0.3]], dtype=torch.float64)
LABELS = torch.tensor([[1.0, -1.0, -1.0], [1.0, -1.0, -1.0]], dtype=torch.float64)


def slow(name: str, weights: list[float]) -> float:
    total, count = 0.0, 0.0
    for row, weight in zip(SCORES.tolist(), weights, strict=True):
        if name == "squared":
            losses = [(score - label) ** 2 for score, label in zip(row, (1, -1, -1), strict=True)]
        elif name == "logistic":
            losses = [math.log(1 + math.exp(-label * score)) for score, label in zip(row, (1, -1, -1), strict=True)]
        elif name == "bpr":
            losses = [-math.log(1 / (1 + math.exp(-(row[0] - other)))) for other in row[1:]]
        else:
            losses = [-math.log(math.exp(row[0]) / sum(math.exp(one) for one in row))]
        total += weight * sum(losses)
        count += weight * len(losses)
    return total / count


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("weights", [None, [1.0, 3.0]])
def test_each_objective_is_its_loop(name: str, weights: list[float] | None) -> None:
    given = None if weights is None else torch.tensor(weights, dtype=torch.float64)
    found = OBJECTIVES[name](SCORES, LABELS, given)
    assert float(found) == pytest.approx(slow(name, weights or [1.0, 1.0]), rel=1e-12)
    assert torch.autograd.gradcheck(lambda scores: OBJECTIVES[name](scores, LABELS, given), (SCORES.clone().requires_grad_(),))
