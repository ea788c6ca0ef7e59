"""Running sums against the loop over rows and events."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gmlfm.kernels.cpu.parts import Parts
from gmlfm.kernels.cpu.role_sums import _COLUMNS_PER_PART, _PIECES_PER_PART, CpuRoleSums
from gmlfm.kernels.cpu.role_walks import PieceArrays
from gmlfm.kernels.role_sums import Windows, role_sums, role_sums_backward

N_ITEMS = 6
ROLES = [("last", "recent", "past"), ("past", "last"), ("recent",)]
SERIAL, PARALLEL = Parts(1), Parts(3)


def draw_batch(rng: np.random.Generator, n_pieces: int, most_rows: int, length: int, dropout: float) -> PieceArrays:
    """Pieces that begin anywhere in a user's events, the very start included, each row further on by none, 1 or several."""
    starts, stops, sizes, n_events = [], [], [], 0
    for _ in range(n_pieces):
        n_rows = int(rng.integers(1, most_rows + 1))
        history = rng.choice([0, 0, 1, 1, 1, 2, 7], n_rows)
        history[0] = rng.choice([0, 1, 5, 40])
        stop = n_events + np.cumsum(history)
        starts.append(np.maximum(n_events, stop - length))
        stops.append(stop)
        sizes.append(n_rows)
        n_events = int(stop[-1])
    return PieceArrays(
        rng.integers(0, N_ITEMS, n_events).astype(np.int32),
        rng.random(n_events) >= dropout,
        np.concatenate(starts),
        np.concatenate(stops),
        np.cumsum([0, *sizes]),
    )


def assert_as_slow(
    roles: tuple[str, ...], half_life: float, batch: PieceArrays, vectors: Any, gradient: Any, summed: bool
) -> None:
    windows = Windows(*batch[:4])
    for parts in (SERIAL, PARALLEL):
        fast = CpuRoleSums(roles, half_life, parts)
        sums = fast.forward(batch, vectors, summed=summed)
        np.testing.assert_allclose(sums, role_sums(roles, half_life, windows, vectors, summed=summed), rtol=1e-5, atol=1e-6)
        expected = role_sums_backward(roles, half_life, windows, N_ITEMS, gradient, summed=summed)
        atol = 1e-6 * max(1.0, np.abs(expected).max())  # of a sum over many rows
        np.testing.assert_allclose(np.stack(fast.backward(gradient)), expected, rtol=1e-5, atol=atol)


@given(
    st.sampled_from(ROLES),
    st.sampled_from([0.5, 1.0, 5.5, 30.0, 1000.0]),
    st.sampled_from([1, 2, 10, 1000]),
    st.sampled_from([0.0, 0.3, 0.9, 1.0]),
    st.sampled_from([(1, 1), (3, 8), (_PIECES_PER_PART + 1, 1), (2, 60)]),
    st.sampled_from([1, 3, _COLUMNS_PER_PART + 1]),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
def test_sums_and_gradients_are_those_of_the_loop(
    roles: tuple[str, ...],
    half_life: float,
    length: int,
    dropout: float,
    shape: tuple[int, int],
    width: int,
    summed: bool,
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    batch = draw_batch(rng, *shape, length, dropout)
    vectors = rng.normal(size=(len(roles), N_ITEMS, width)).astype(np.float32)
    sizes = (len(batch.row_stop), width) if summed else (len(roles), len(batch.row_stop), width)
    assert_as_slow(roles, half_life, batch, vectors, rng.normal(size=sizes).astype(np.float32), summed)


@pytest.mark.parametrize("half_life", [0.5, 1000.0])
def test_what_left_a_window_leaves_nothing_behind(half_life: float) -> None:
    """A vector and a gradient a million times as large as the others, at the oldest event and at the latest row."""
    rng, n = np.random.default_rng(0), 400
    stop = np.arange(1, n + 1)
    events = rng.integers(1, N_ITEMS, n).astype(np.int32)
    events[0] = 0
    batch = PieceArrays(events, np.ones(n, bool), np.maximum(0, stop - 5), stop, np.array([0, n]))
    vectors = rng.normal(size=(2, N_ITEMS, 4)).astype(np.float32)
    vectors[:, 0] *= 1e6
    fast, roles = CpuRoleSums(("recent", "past"), half_life, SERIAL), ("recent", "past")
    expected = role_sums(roles, half_life, Windows(*batch[:4]), vectors, summed=False)
    np.testing.assert_allclose(fast.forward(batch, vectors, summed=False)[:, 5:], expected[:, 5:], rtol=1e-5, atol=1e-6)
    batch.events[:] = rng.integers(0, N_ITEMS - 1, n)
    batch.events[-5:] = N_ITEMS - 1  # the others are free of what enters with the last row
    gradient = rng.normal(size=(n, 4)).astype(np.float32)
    gradient[-1] *= 1e6
    fast.forward(batch, vectors, summed=True)
    back = role_sums_backward(roles, half_life, Windows(*batch[:4]), N_ITEMS, gradient, summed=True)
    np.testing.assert_allclose(np.stack(fast.backward(gradient))[:, :-1], back[:, :-1], rtol=1e-5, atol=1e-5)


def test_threads_do_not_change_a_bit() -> None:
    rng = np.random.default_rng(5)
    batch = draw_batch(rng, 50, 8, 20, 0.2)
    vectors = rng.normal(size=(3, N_ITEMS, 70)).astype(np.float32)
    gradient = rng.normal(size=(len(batch.row_stop), 70)).astype(np.float32)
    results = []
    for n_threads in (1, 2, 5):
        fast = CpuRoleSums(ROLES[0], 5.5, Parts(n_threads))
        results.append((fast.forward(batch, vectors, summed=True), np.stack(fast.backward(gradient))))
    for sums, vector_grads in results[1:]:
        assert sums.tobytes() == results[0][0].tobytes()
        assert vector_grads.tobytes() == results[0][1].tobytes()


def test_a_batch_of_no_rows_has_no_gradient() -> None:
    empty = np.empty(0, np.int64)
    batch = PieceArrays(empty.astype(np.int32), empty.astype(bool), empty, empty, np.zeros(1, np.int64))
    fast = CpuRoleSums(ROLES[0], 5.5, SERIAL)
    assert fast.forward(batch, np.ones((3, N_ITEMS, 4), np.float32), summed=True).shape == (0, 4)
    assert not np.any(fast.backward(np.empty((0, 4), np.float32)))
