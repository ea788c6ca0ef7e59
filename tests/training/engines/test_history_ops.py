"""The operations of a step with histories: as PyTorch has them and compiled they do the same, and what the references say."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch

from gmlfm.kernels.role_sums import Windows as ReferenceWindows
from gmlfm.kernels.role_sums import role_sums, role_sums_backward
from gmlfm.kernels.softmax_loss import SoftmaxColumns, SoftmaxRows, SoftmaxTargets, softmax_loss
from gmlfm.models.base import HistorySpec
from gmlfm.training.engines import history_ops
from gmlfm.training.engines.history_ops import Columns, HistoryOps, Windows

ROLES = ("last", "recent", "past")
SPEC = HistorySpec(ROLES, 2.5, 4, 100)
N_ITEMS, N_ROWS, WIDTH = 7, 9, 3


def ops(compiled: bool) -> HistoryOps:
    made = HistoryOps(SPEC, torch.device("cpu"))
    made._is_cpu = compiled
    return made


def windows(seed: int) -> Windows:
    """Four pieces of rows; a piece begins without events, with some, or has rows of the same history."""
    rng = np.random.default_rng(seed)
    pieces = np.array([0, 3, 4, 8, N_ROWS])
    first, stop, n_events = [], [], 0
    for begin, end in itertools.pairwise(pieces):
        stops = n_events + np.sort(rng.integers(0, 8, end - begin))
        first += [n_events] * int(end - begin)
        stop += stops.tolist()
        n_events = int(stops[-1])
    row_first, row_stop = np.array(first), np.array(stop)
    places = rng.integers(0, N_ITEMS, n_events).astype(np.int32)
    return Windows(places, rng.random(n_events) < 0.6, np.maximum(row_first, row_stop - SPEC.length), row_stop, pieces)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("summed", [True, False])
def test_sums_by_role_and_their_gradients(seed: int, compiled: bool, summed: bool) -> None:
    at_hand, generator = windows(seed), torch.Generator().manual_seed(seed)
    vectors = torch.randn(3, N_ITEMS, WIDTH, generator=generator).requires_grad_()
    sums = ops(compiled).role_sums(at_hand, vectors, summed=summed)
    reference = ReferenceWindows(at_hand.places, at_hand.is_kept, at_hand.start, at_hand.stop)
    expected = role_sums(ROLES, SPEC.half_life, reference, vectors.detach().numpy(), summed=summed)
    np.testing.assert_allclose(sums.detach().numpy(), expected, rtol=1e-4, atol=1e-5)
    gradient = torch.randn(sums.shape, generator=generator)
    sums.backward(gradient)
    assert vectors.grad is not None
    backward = role_sums_backward(ROLES, SPEC.half_life, reference, N_ITEMS, gradient.numpy(), summed=summed)
    np.testing.assert_allclose(vectors.grad.numpy(), backward, rtol=1e-4, atol=1e-5)


def test_a_batch_without_any_event_sums_to_nothing() -> None:
    nothing = np.zeros(2, np.int64)
    empty = Windows(np.empty(0, np.int32), np.empty(0, bool), nothing, nothing, np.array([0, 1, 2]))
    for compiled in (True, False):
        sums = ops(compiled).role_sums(empty, torch.ones(3, 1, WIDTH, requires_grad=True), summed=True)
        assert sums.shape == (2, WIDTH)
        assert (sums == 0).all()


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("is_sampled", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("logits_per_block", [1, 20, 10**6])
def test_the_softmax_and_its_gradients(
    compiled: bool, is_sampled: bool, weighted: bool, logits_per_block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_ops, "_LOGITS_PER_BLOCK", logits_per_block)
    rng, generator = np.random.default_rng(3), torch.Generator().manual_seed(3)
    n_items, n_columns = 12, 6 if is_sampled else 12
    drawn = rng.permutation(n_items)[:n_columns]
    of_item = np.full(n_items + 1, -1, np.int32)
    of_item[drawn] = np.arange(n_columns)
    target_items = rng.integers(0, n_items, N_ROWS)
    mask_items = np.append(rng.integers(0, n_items, 14), n_items).astype(np.int32)  # the last stands for none
    mask_start = rng.integers(0, 8, N_ROWS)
    mask_stop = mask_start + rng.integers(0, 8, N_ROWS)
    target, correction = of_item[target_items].astype(np.int64), np.log(2.0) if is_sampled else 0.0
    weights = rng.integers(1, 4, N_ROWS).astype(np.float32) if weighted else None
    users, items = (torch.randn(n, WIDTH, generator=generator).requires_grad_() for n in (N_ROWS, n_columns))
    terms = torch.randn(n_columns, generator=generator).requires_grad_()
    apart: Any = None
    if is_sampled:
        apart = tuple(torch.randn(*shape, generator=generator).requires_grad_() for shape in ((N_ROWS, WIDTH), (N_ROWS,)))
    columns = Columns(of_item, target, mask_items, mask_start, mask_stop, float(correction))
    loss = ops(compiled).softmax_loss(users, items, terms, apart, weights, columns)
    (2.0 * loss).backward()  # type: ignore[no-untyped-call]
    # The reference has no item that stands for none.
    starts = [
        np.array([item for item in mask_items[a:b] if item < n_items], np.int32)
        for a, b in zip(mask_start, mask_stop, strict=True)
    ]
    bounds = np.concatenate([[0], np.cumsum([len(part) for part in starts])])
    rows = SoftmaxRows(users.detach().numpy(), target, np.concatenate(starts), bounds[:-1], bounds[1:], weights)
    reference = softmax_loss(
        rows,
        SoftmaxColumns(items.detach().numpy(), terms.detach().numpy(), of_item[:-1], float(correction)),
        None if apart is None else SoftmaxTargets(*(part.detach().numpy() for part in apart)),
    )
    assert float(loss.detach()) == pytest.approx(reference.loss, rel=1e-5)
    leaves = [users, items, terms, *(apart or ())]
    expected = [reference.row_grads, reference.column_grads, reference.column_term_grads]
    if reference.target_grads is not None and reference.target_term_grads is not None:
        expected += [reference.target_grads, reference.target_term_grads]
    for leaf, gradient in zip(leaves, expected, strict=True):
        assert leaf.grad is not None
        np.testing.assert_allclose(leaf.grad.numpy(), 2.0 * gradient, rtol=1e-4, atol=1e-5)


def test_the_target_is_never_masked_in_the_whole_catalogue() -> None:
    """Without a correction the targets are columns."""
    columns = Columns(
        np.arange(3, dtype=np.int32), np.array([1]), np.array([1, 2], np.int32), np.array([0]), np.array([2]), 0.0
    )
    masked, _ = history_ops._masked_pairs(columns, 1, torch.device("cpu"))
    assert masked.tolist() == [[0], [2]]
