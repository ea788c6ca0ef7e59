"""The softmax over many items, against PyTorch's own over one row's items at a time."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from gmlfm.training.engines.sequence_ops import Mask, masked_softmax_loss

B, C, K = 7, 5, 3


def made(in_columns: bool) -> tuple[list[Any], Mask]:
    torch.manual_seed(0)
    users, items, own = (torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in ((B, K), (C, K), (B,)))
    first_place = torch.randint(0, 6, (2, C), dtype=torch.int32)
    piece, n_before = torch.tensor([0, 0, 0, 1, 1, 1, 1]), torch.tensor([0, 3, 9, 0, 1, 4, 9], dtype=torch.int32)
    target = torch.tensor([0, 1, 2, 3, 4, 0, 1]) if in_columns else torch.tensor([-1, 1, -1, 3, -1, -1, 0])
    weights = torch.linspace(0.5, 2.0, B, dtype=torch.float64)
    return [users, items, None if in_columns else own, weights], Mask(first_place, piece, n_before, target)


def slow_loss(users: Tensor, items: Tensor, own: Tensor | None, weights: Tensor, mask: Mask, correction: float) -> Tensor:
    losses = []
    for row in range(B):
        target, piece = int(mask.target[row]), int(mask.piece[row])
        counts = [c for c in range(C) if c != target and mask.first_place[piece, c] >= mask.n_before[row]]
        mine = users[row] @ items[target] if own is None else own[row]
        logits = torch.stack([mine, *(users[row] @ items[c] + correction for c in counts)])
        losses.append(-torch.log_softmax(logits, 0)[0])
    return (torch.stack(losses) * weights).sum() / weights.sum()


@pytest.mark.parametrize("logits_at_once", [1, 12, 1000])
@pytest.mark.parametrize("in_columns", [True, False])
def test_loss_and_gradients_are_the_softmaxs(in_columns: bool, logits_at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gmlfm.training.engines.sequence_ops._LOGITS_ON_CPU", logits_at_once)
    parts, mask = made(in_columns)
    correction = 0.0 if in_columns else math.log(8)
    leaves = [part for part in parts[:3] if part is not None]
    loss, slow = masked_softmax_loss(*parts, mask, correction), slow_loss(*parts, mask, correction)
    torch.testing.assert_close(loss, slow)
    for fast_grad, slow_grad in zip(torch.autograd.grad(loss, leaves), torch.autograd.grad(slow, leaves), strict=True):
        torch.testing.assert_close(fast_grad, slow_grad)


def test_a_row_with_all_other_items_masked_has_no_loss() -> None:
    parts, mask = made(in_columns=True)
    nothing_left = Mask(torch.zeros_like(mask.first_place), mask.piece, torch.full_like(mask.n_before, 9), mask.target)
    assert masked_softmax_loss(*parts, nothing_left).item() == pytest.approx(0.0, abs=1e-12)
