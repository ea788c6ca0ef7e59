"""The softmax over many items for the targets of users' sequences, block after block of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

_LOGITS_ON_CPU, _LOGITS_ON_GPU = 1_000_000, 64_000_000  # held at a time; on a CPU they stay in its cache
_NEVER = float("-inf")


@dataclass(frozen=True)
class Mask:
    """Which items a row's user had before. first_place (P, C): after how many of a piece's events an item was had, a large
    number for never; piece, n_before (B,): of each row, and how many events lie before it; target (B,): the column of its own
    item, -1 where that is not among the columns."""

    first_place: Tensor
    piece: Tensor
    n_before: Tensor
    target: Tensor

    def of(self, block: slice) -> Tensor:
        """(b, C): what does not count, the target aside."""
        return self.first_place[self.piece[block]] < self.n_before[block].unsqueeze(1)


def masked_softmax_loss(
    users: Tensor, items: Tensor, own_scores: Tensor | None, weights: Tensor, mask: Mask, correction: float = 0.0
) -> Tensor:
    """The weighted mean of -log of the target's share in the softmax over the items.

    users (B, K), items (C, K), weights (B,). own_scores (B,): the targets' scores where the items are a sample, to whose logits
    the correction is added; a target that was drawn, too, does not count among them. None: each target is among the items.
    """
    loss: Tensor = _Softmax.apply(users, items, own_scores, weights, mask, correction)  # type: ignore[no-untyped-call]
    return loss


class _Softmax(torch.autograd.Function):
    """Gradients are made with the loss, so that the logits of some rows at a time are all that is held."""

    @staticmethod
    def forward(
        ctx: Any, users: Tensor, items: Tensor, own_scores: Tensor | None, weights: Tensor, mask: Mask, correction: float
    ) -> Tensor:
        shares = (weights / weights.sum()).unsqueeze(1)
        user_grads, item_grads = torch.empty_like(users), torch.zeros_like(items)
        own_grads = None if own_scores is None else torch.empty_like(own_scores)
        losses = users.new_zeros(())
        at_once = _LOGITS_ON_GPU if users.is_cuda else _LOGITS_ON_CPU
        step = max(1, at_once // max(len(items), 1))
        for start in range(0, len(users), step):
            block = slice(start, start + step)
            logits, share, target = users[block] @ items.T, shares[block], mask.target[block].unsqueeze(1)
            is_masked = mask.of(block)
            if own_scores is None:
                is_masked.scatter_(1, target, False)
                logits.masked_fill_(is_masked, _NEVER)
                log_sum = torch.logsumexp(logits, 1, keepdim=True)
                losses += ((log_sum - logits.gather(1, target)) * share).sum()
                grads = logits.sub_(log_sum).exp_()
                grads.scatter_add_(1, target, -torch.ones_like(share))
            else:
                assert own_grads is not None
                is_drawn = target >= 0
                column = target.clamp_min(0)
                is_masked.scatter_(1, column, is_masked.gather(1, column) | is_drawn)
                logits.add_(correction).masked_fill_(is_masked, _NEVER)
                mine = own_scores[block].unsqueeze(1)
                log_sum = torch.logaddexp(torch.logsumexp(logits, 1, keepdim=True), mine)
                losses += ((log_sum - mine) * share).sum()
                grads = logits.sub_(log_sum).exp_()
                own_grads[block] = (((mine - log_sum).exp() - 1.0) * share).squeeze(1)
            grads *= share
            torch.mm(grads, items, out=user_grads[block])
            item_grads.addmm_(grads.T, users[block])
        ctx.save_for_backward(user_grads, item_grads, *(() if own_grads is None else (own_grads,)))
        return losses

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (scale,) = grads
        user_grads, item_grads, *own_grads = (saved * scale for saved in ctx.saved_tensors)
        return user_grads, item_grads, (own_grads[0] if own_grads else None), None, None, None
