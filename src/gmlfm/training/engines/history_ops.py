"""The two parts of a step with histories that no ordinary operation does: sums over histories by role, and the softmax over
many items, row block after row block. On a CPU by compiled kernels, elsewhere as PyTorch has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from gmlfm.data.histories import History, ranges
from gmlfm.kernels.cpu.parts import Parts
from gmlfm.kernels.cpu.role_sums import CpuRoleSums, recent_starts
from gmlfm.kernels.cpu.role_walks import PieceArrays
from gmlfm.kernels.cpu.softmax_loss import CpuSoftmaxLoss
from gmlfm.kernels.softmax_loss import SoftmaxColumns, SoftmaxRows, SoftmaxTargets
from gmlfm.models.base import HistorySpec
from gmlfm.models.history import role_bags

_LOGITS_PER_BLOCK = 16_000_000  # on a GPU some 64 MB, of which a few stay at the same time
_NEVER = float("-inf")
Longs = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Windows:
    """Each row's window among the events of a batch: places into the items' vectors (E,), the dropout mask, start and stop
    (B,), and the rows of each piece (P + 1,)."""

    places: npt.NDArray[np.int32]
    is_kept: npt.NDArray[np.bool_]
    start: Longs
    stop: Longs
    pieces: Longs


@dataclass(frozen=True)
class Columns:
    """The items that a softmax is over.

    of_item: (I + 1,) the column of each item, -1 for none. target: (B,) the column of each row's target, -1 where it has none.
    mask_items: (E,) items that rows mask, row b those of mask_start[b] to mask_stop[b]; I stands for none. correction: added to
    every logit but the target's.
    """

    of_item: npt.NDArray[np.int32]
    target: Longs
    mask_items: npt.NDArray[np.int32]
    mask_start: Longs
    mask_stop: Longs
    correction: float


class HistoryOps:
    """Holds what the compiled operations keep between steps."""

    def __init__(self, spec: HistorySpec, device: torch.device) -> None:
        self._spec, self._is_cpu = spec, device.type == "cpu"
        self.parts = Parts(torch.get_num_threads())
        if self._is_cpu:
            self._sums = CpuRoleSums(spec.roles, spec.half_life, self.parts)
            self._softmax = CpuSoftmaxLoss(self.parts)

    def role_sums(self, windows: Windows, vectors: Sequence[Tensor], *, summed: bool) -> Tensor:
        """The weighted sums over rows' windows: vectors of the items by role, (M, D) each -> (R, B, D); summed: over the roles,
        (B, D)."""
        if self._is_cpu:
            pieces = PieceArrays(windows.places, windows.is_kept, windows.start, windows.stop, windows.pieces)
            sums: Tensor = _RoleSums.apply(self._sums, pieces, summed, *vectors)  # type: ignore[no-untyped-call]
            return sums
        by_role = torch.stack(_bag_sums(windows, self._spec, vectors))
        return by_role.sum(0) if summed else by_role

    def softmax_loss(
        self,
        users: Tensor,
        items: Tensor,
        self_terms: Tensor,
        targets: tuple[Tensor, Tensor] | None,
        weights: npt.NDArray[np.float32] | None,
        columns: Columns,
    ) -> Tensor:
        """The weighted mean of -log of the target's share in the softmax over the columns.

        users (B, D), columns (C, D) and their self terms (C,); targets: vectors (B, D) and self terms (B,), where they stand
        apart from the columns.
        """
        if self._is_cpu:
            apart = (None, None) if targets is None else targets
            loss: Tensor = _CpuSoftmax.apply(users, items, self_terms, *apart, weights, columns, self._softmax)  # type: ignore[no-untyped-call]
            return loss
        own_scores = None if targets is None else (users * targets[0]).sum(1) + targets[1]
        share = np.ones(len(users), np.float32) if weights is None else weights
        loss = _Softmax.apply(users, items, self_terms, own_scores, torch.from_numpy(share).to(users.device), columns)  # type: ignore[no-untyped-call]
        return loss


class _RoleSums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, sums: CpuRoleSums, pieces: PieceArrays, summed: bool, *vectors: Tensor) -> Tensor:
        ctx.sums = sums
        # Loops over rows that lie apart would not become vector loops.
        arrays = [of_items.detach().contiguous().numpy() for of_items in vectors]
        return torch.from_numpy(sums.forward(pieces, arrays, summed=summed))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        vector_grads = ctx.sums.backward(grads[0].contiguous().numpy())
        return None, None, None, *(torch.from_numpy(grad) for grad in vector_grads)


class _CpuSoftmax(torch.autograd.Function):
    """Gradients are made with the loss; a step has one loss, so that they may stay where the kernel wrote them."""

    @staticmethod
    def forward(
        ctx: Any,
        users: Tensor,
        items: Tensor,
        self_terms: Tensor,
        target_vectors: Tensor | None,
        target_terms: Tensor | None,
        weights: npt.NDArray[np.float32] | None,
        columns: Columns,
        softmax: CpuSoftmaxLoss,
    ) -> Tensor:
        rows = SoftmaxRows(
            users.detach().numpy(), columns.target, columns.mask_items, columns.mask_start, columns.mask_stop, weights
        )
        of_columns = SoftmaxColumns(items.detach().numpy(), self_terms.detach().numpy(), columns.of_item, columns.correction)
        targets = None
        if target_vectors is not None and target_terms is not None:
            targets = SoftmaxTargets(target_vectors.detach().numpy(), target_terms.detach().numpy())
        result = softmax(rows, of_columns, targets)
        grads = (result.row_grads, result.column_grads, result.column_term_grads, result.target_grads, result.target_term_grads)
        ctx.grads = [None if grad is None else torch.from_numpy(grad) for grad in grads]
        return torch.tensor(result.loss, dtype=users.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return (*(None if grad is None else grad * grads[0] for grad in ctx.grads), None, None, None)


def _bag_sums(windows: Windows, spec: HistorySpec, vectors: Sequence[Tensor]) -> list[Tensor]:
    """As the compiled sums, by weighted bags: each window is read whole."""
    sums = []
    for role, of_items in zip(spec.roles, vectors, strict=True):
        start = windows.start
        if role == "recent":
            start = recent_starts(windows.is_kept, windows.start, windows.stop, spec.half_life)
        flat, starts = ranges(start, windows.stop)
        history = History(starts, windows.places[flat])
        bags = role_bags(history, role, spec)
        weights = bags.weights
        if role != "last":
            owners = np.repeat(np.arange(len(history)), history.lengths)
            weights = weights * windows.is_kept[flat]
            norms = np.sqrt(np.bincount(owners, weights.astype(np.float64) ** 2, minlength=len(history)))
            weights = (weights / np.maximum(norms, 1e-30)[owners]).astype(np.float32)
        items, offsets = (
            torch.from_numpy(array.astype(np.int64)).to(of_items.device) for array in (bags.items, bags.starts[:-1])
        )
        weighted = torch.from_numpy(weights).to(of_items.device, of_items.dtype)
        sums.append(functional.embedding_bag(items, of_items, offsets, mode="sum", per_sample_weights=weighted))
    return sums


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
        targets = torch.from_numpy(columns.target).to(users.device)
        masked, bounds = _masked_pairs(columns, step, users.device)
        for number, start in enumerate(range(0, n_rows, step)):
            block = slice(start, min(start + step, n_rows))
            logits = torch.addmm(self_terms, users[block], items.T)
            if columns.correction:
                logits += columns.correction
            rows, places = masked[:, bounds[number] : bounds[number + 1]]
            logits[rows - start, places] = _NEVER
            share = (weights[block] / total).unsqueeze(1)
            if apart is None:
                target = targets[block].unsqueeze(1)
                log_sum = torch.logsumexp(logits, 1, keepdim=True)
                losses += ((log_sum - logits.gather(1, target)) * share).sum()
                grads = torch.exp(logits - log_sum)
                grads.scatter_add_(1, target, -torch.ones_like(target, dtype=grads.dtype))
            else:
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


def _masked_pairs(columns: Columns, rows_per_block: int, device: torch.device) -> tuple[Tensor, Longs]:
    """The (row, column) pairs that do not count, (2, N), and where each block of rows begins among them."""
    flat, starts = ranges(columns.mask_start, columns.mask_stop)
    rows = np.repeat(np.arange(len(columns.target)), np.diff(starts))
    places = columns.of_item[columns.mask_items[flat]].astype(np.int64)
    is_masked = (places >= 0) & (places != columns.target[rows])
    masked = np.stack([rows[is_masked], places[is_masked]])
    if columns.correction:  # sampled: a target that was drawn counts once, apart
        is_drawn = columns.target >= 0
        drawn = np.stack([np.flatnonzero(is_drawn), columns.target[is_drawn]])
        masked = np.concatenate([masked, drawn], axis=1)
        masked = masked[:, np.argsort(masked[0], kind="stable")]
    bounds = np.searchsorted(masked[0], np.arange(0, len(columns.target) + rows_per_block, rows_per_block))
    return torch.from_numpy(masked).to(device), bounds
