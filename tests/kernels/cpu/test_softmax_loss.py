"""Blocks of rows, in parts and tiles, against the loop over rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gmlfm.kernels.cpu import softmax_loss as module
from gmlfm.kernels.cpu.parts import Parts
from gmlfm.kernels.cpu.softmax_loss import CpuSoftmaxLoss
from gmlfm.kernels.softmax_loss import SoftmaxColumns, SoftmaxRows, SoftmaxTargets, softmax_loss

PARALLEL = Parts(3)


def draw_problem(
    seed: int, n_rows: int, n_columns: int, width: int, *, sampled: bool, weighted: bool, timed: bool, size: float = 0.5
) -> tuple[SoftmaxRows, SoftmaxColumns, SoftmaxTargets | None]:
    """Rows that had up to 12 items, some of which are no columns, and some of which are the row's target."""
    rng = np.random.default_rng(seed)

    def normal(*shape: int) -> Any:
        return (size * rng.normal(size=shape)).astype(np.float32)

    n_items = n_columns + 5
    column_of_item = np.full(n_items, -1, np.int32)
    items = rng.permutation(n_items)[:n_columns]
    column_of_item[items] = np.arange(n_columns)
    stop = np.cumsum(rng.integers(0, 13, n_rows))
    start = np.array([0, *stop[:-1]])
    mask_items = rng.integers(0, n_items, stop[-1]).astype(np.int32)
    targets = rng.integers(0, n_items, n_rows) if sampled else rng.choice(items, n_rows)
    for row in range(0, n_rows, 3):
        if stop[row] > start[row]:
            mask_items[start[row]] = targets[row]
    weights = rng.choice([0.0, 0.5, 2.0], n_rows).astype(np.float32) if weighted else None
    first = rng.integers(0, 5, n_columns)
    rows = SoftmaxRows(
        normal(n_rows, width),
        column_of_item[targets].astype(np.int64),
        mask_items,
        start,
        stop,
        weights,
        rng.integers(0, 8, n_rows) if timed else None,
    )
    columns = SoftmaxColumns(
        normal(n_columns, width),
        normal(n_columns),
        column_of_item,
        1.3 if sampled else 0.0,
        first if timed else None,
        first + rng.integers(0, 4, n_columns) if timed else None,
    )
    return rows, columns, SoftmaxTargets(normal(n_rows, width), normal(n_rows)) if sampled else None


def assert_as_slow(problem: Any, fast: CpuSoftmaxLoss) -> None:
    actual, expected = fast(*problem), softmax_loss(*problem)
    assert actual.loss == pytest.approx(expected.loss, rel=1e-5, abs=1e-6)
    for array, slow in zip(actual[1:], expected[1:], strict=True):
        assert (array is None) == (slow is None)
        if slow is not None:
            np.testing.assert_allclose(array, slow, rtol=1e-4, atol=2e-6 * max(np.abs(slow).max(initial=0.0), 1e-6))


@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([1, 2, 5, 64, 65, 300]),
    st.sampled_from([1, 3, 40, 511, 512, 513]),
    st.sampled_from([1, 4, 17]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_loss_and_gradients_are_those_of_the_loop(
    seed: int, n_rows: int, n_columns: int, width: int, sampled: bool, weighted: bool, timed: bool
) -> None:
    problem = draw_problem(seed, n_rows, n_columns, width, sampled=sampled, weighted=weighted, timed=timed)
    assert_as_slow(problem, CpuSoftmaxLoss(PARALLEL))


@pytest.mark.parametrize("sampled", [False, True])
def test_many_blocks_of_a_part_and_parts_of_different_sizes(sampled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second call has other shapes than the first, the third fewer rows with the same columns."""
    monkeypatch.setattr(module, "_FEWEST_ROWS", 5)
    monkeypatch.setattr(module, "_MOST_ROWS", 7)
    fast = CpuSoftmaxLoss(PARALLEL)
    for n_rows, n_columns in ((203, 40), (131, 1_027), (90, 1_027)):
        problem = draw_problem(n_rows, n_rows, n_columns, 6, sampled=sampled, weighted=True, timed=True)
        assert_as_slow(problem, fast)


@pytest.mark.parametrize("sampled", [False, True])
def test_scores_far_apart_neither_overflow_nor_vanish(sampled: bool) -> None:
    for size in (1e-4, 10.0, 60.0):
        problem = draw_problem(1, 20, 30, 4, sampled=sampled, weighted=False, timed=False, size=size)
        assert_as_slow(problem, CpuSoftmaxLoss(Parts(1)))


@pytest.mark.parametrize("sampled", [False, True])
def test_a_target_alone_costs_nothing(sampled: bool) -> None:
    rows, columns, targets = draw_problem(1, 3, 40, 4, sampled=sampled, weighted=False, timed=False)
    everything = np.arange(45, dtype=np.int32)
    rows = rows._replace(mask_items=everything, mask_start=np.zeros(3, np.int64), mask_stop=np.full(3, 45))
    result = CpuSoftmaxLoss(Parts(1))(rows, columns, targets)
    assert result.loss == 0.0
    assert not any(array.any() for array in result[1:] if array is not None)


def test_masked_columns_have_no_gradient_at_all() -> None:
    """However their scores are: not even one that is rounded away."""
    rows, columns, _ = draw_problem(1, 3, 40, 4, sampled=False, weighted=False, timed=False)
    item = int(np.flatnonzero(columns.column_of_item == 7)[0])
    rows = rows._replace(
        target_columns=np.array([1, 2, 3]),
        mask_items=np.array([item], np.int32),
        mask_start=np.zeros(3, np.int64),
        mask_stop=np.ones(3, np.int64),
    )
    columns.self_terms[7] = 80.0
    result = CpuSoftmaxLoss(Parts(1))(rows, columns)
    assert result.loss < 20
    assert not result.column_grads[7].any()
    assert result.column_term_grads[7] == 0


def test_rows_of_no_weight_cost_nothing() -> None:
    rows, columns, _ = draw_problem(1, 3, 40, 4, sampled=False, weighted=True, timed=False)
    result = CpuSoftmaxLoss(Parts(1))(rows._replace(weights=np.zeros(3, np.float32)), columns)
    assert result.loss == 0.0
    assert not result.column_grads.any()


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_score_that_is_no_number_makes_a_loss_that_is_none(sampled: bool, value: float) -> None:
    rows, columns, targets = draw_problem(1, 3, 40, 4, sampled=sampled, weighted=False, timed=False)
    columns.self_terms[:] = value
    assert not np.isfinite(CpuSoftmaxLoss(Parts(1))(rows, columns, targets).loss)


@pytest.mark.parametrize("sampled", [False, True])
def test_threads_do_not_change_a_bit(sampled: bool) -> None:
    problem = draw_problem(1, 700, 900, 24, sampled=sampled, weighted=True, timed=True)
    results = [CpuSoftmaxLoss(Parts(n_threads))(*problem) for n_threads in (1, 2, 5)]
    for result in results[1:]:
        assert result.loss == results[0].loss
        for array, first in zip(result[1:], results[0][1:], strict=True):
            assert (array is None and first is None) or array.tobytes() == first.tobytes()
