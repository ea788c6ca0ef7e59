"""The two parts of a step with histories that no ordinary operation does: sums over histories by role, and the softmax over
many items, row block after row block. As PyTorch has them; on a CPU compiled twins take over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from gmlfm.data.histories import History, ranges
from gmlfm.models.base import HistorySpec
from gmlfm.models.history import role_bags

_LOGITS_PER_BLOCK = 4_000_000  # on a GPU some 16 MB, of which a few stay at the same time
_NEVER = float("-inf")


@dataclass(frozen=True)
class Windows:
    """Each row's window among the events of a batch: places into the items' vectors (E,), the dropout mask, start and stop
    (B,), and the rows of each piece (P + 1,)."""

    places: npt.NDArray[np.int32]
    is_kept: npt.NDArray[np.bool_]
    start: npt.NDArray[np.int64]
    stop: npt.NDArray[np.int64]
    pieces: npt.NDArray[np.int64]


def role_sums(windows: Windows, spec: HistorySpec, vectors: list[Tensor]) -> list[Tensor]:
    """For each role the weighted sum over a row's window: vectors (M, D) by role -> (B, D) by role."""
    flat, starts = ranges(windows.start, windows.stop)
    history = History(starts, windows.places[flat])
    is_kept = windows.is_kept[flat]
    sums = []
    for role, of_items in zip(spec.roles, vectors, strict=True):
        bags = role_bags(history, role, spec)
        weights = bags.weights
        if role != "last":
            weights = weights * is_kept
            owners = np.repeat(np.arange(len(history)), history.lengths)
            norms = np.sqrt(np.bincount(owners, weights.astype(np.float64) ** 2, minlength=len(history)))
            weights = (weights / np.maximum(norms, 1e-30)[owners]).astype(np.float32)
        items, offsets = (
            torch.from_numpy(array.astype(np.int64)).to(of_items.device) for array in (bags.items, bags.starts[:-1])
        )
        weighted = torch.from_numpy(weights).to(of_items.device, of_items.dtype)
        sums.append(functional.embedding_bag(items, of_items, offsets, mode="sum", per_sample_weights=weighted))
    return sums


@dataclass(frozen=True)
class Columns:
    """The items that a softmax is over. masked: (row, column) pairs that do not count, (2, N) int64; correction: added to every
    logit but the target's; target: (B,) the columns of the targets, or None where these stand apart."""

    masked: Tensor
    correction: float
    target: Tensor | None


def softmax_loss(
    users: Tensor, items: Tensor, self_terms: Tensor, apart: Tensor | None, weights: Tensor, columns: Columns
) -> Tensor:
    """The weighted mean of -log of the target's share in the softmax over the columns.

    users (B, D), columns (C, D), their self terms (C,), the targets' own scores (B,) where they stand apart, weights (B,).
    """
    loss: Tensor = _Softmax.apply(users, items, self_terms, apart, weights, columns)  # type: ignore[no-untyped-call]
    return loss


class _Softmax(torch.autograd.Function):
    """Gradients are made with the loss, so that the logits of some rows at a time are all that is held."""

    @staticmethod
    def forward(
        ctx: Any, users: Tensor, items: Tensor, self_terms: Tensor, apart: Tensor | None, weights: Tensor, columns: Columns
    ) -> Tensor:
        n_rows, total = len(users), weights.sum()
        user_grads, item_grads, term_grads = torch.empty_like(users), torch.zeros_like(items), torch.zeros_like(self_terms)
        own_grads = None if apart is None else torch.empty_like(apart)
        losses, step = users.new_zeros(()), max(1, _LOGITS_PER_BLOCK // max(len(items), 1))
        bounds = torch.searchsorted(columns.masked[0].contiguous(), torch.arange(0, n_rows + step, step, device=users.device))
        for number, start in enumerate(range(0, n_rows, step)):
            block = slice(start, min(start + step, n_rows))
            logits = torch.addmm(self_terms, users[block], items.T)
            if columns.correction:
                logits += columns.correction
            rows, places = columns.masked[:, bounds[number] : bounds[number + 1]]
            logits[rows - start, places] = _NEVER
            share = (weights[block] / total).unsqueeze(1)
            if columns.target is not None:
                target = columns.target[block].unsqueeze(1)
                log_sum = torch.logsumexp(logits, 1, keepdim=True)
                losses += ((log_sum - logits.gather(1, target)) * share).sum()
                grads = torch.exp(logits - log_sum)
                grads.scatter_add_(1, target, -torch.ones_like(target, dtype=grads.dtype))
            else:
                assert apart is not None
                assert own_grads is not None
                mine = apart[block].unsqueeze(1)
                log_sum = torch.logaddexp(torch.logsumexp(logits, 1, keepdim=True), mine)
                losses += ((log_sum - mine) * share).sum()
                grads = torch.exp(logits - log_sum)
                own_grads[block] = ((torch.exp(mine - log_sum) - 1.0) * share).squeeze(1)
            grads *= share
            user_grads[block] = grads @ items
            item_grads.addmm_(grads.T, users[block])
            term_grads += grads.sum(0)
        ctx.save_for_backward(user_grads, item_grads, term_grads, *(() if own_grads is None else (own_grads,)))
        return losses

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (scale,) = grads
        user_grads, item_grads, term_grads, *own_grads = (saved * scale for saved in ctx.saved_tensors)
        return user_grads, item_grads, term_grads, (own_grads[0] if own_grads else None), None, None
