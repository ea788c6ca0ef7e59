"""Each loss by hand against the objective and its gradient by torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gmlfm.kernels.codes import LOSS_CODES, loss_terms
from gmlfm.kernels.cpu.losses import group_loss
from gmlfm.training.objectives import OBJECTIVES


@pytest.mark.parametrize("name", LOSS_CODES)
@given(values=st.lists(st.floats(-20, 20, width=32), min_size=2, max_size=6))
def test_a_groups_loss_and_gradient(name: str, values: list[float]) -> None:
    scores = torch.tensor([values], dtype=torch.float64, requires_grad=True)
    labels = torch.full((1, len(values)), -1.0, dtype=torch.float64)
    labels[:, 0] = 1.0
    terms = loss_terms(LOSS_CODES[name], len(values))
    expected = OBJECTIVES[name](scores, labels, None) * terms
    (gradient,) = torch.autograd.grad(expected, [scores])
    score_grads = np.empty(len(values), np.float32)
    loss = group_loss(LOSS_CODES[name], np.array(values, np.float32), labels.numpy().astype(np.float32), 0, score_grads)
    assert float(loss) == pytest.approx(float(expected.detach()), rel=1e-4, abs=1e-5)
    np.testing.assert_allclose(score_grads, gradient[0].numpy(), rtol=1e-4, atol=1e-5)
