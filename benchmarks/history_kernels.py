"""The kernels of training with histories at sizes like ML-1M's: the softmax step beside torch's sgemm, and the history sums.

python benchmarks/history_kernels.py [--threads 2] [--rounds 10]

All are measured in turn, round after round; of each the best round counts, since other programs only ever add time. Beside busy
programs a long call is interrupted and a short one is not: look at the rates by processor time, with --threads 1.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import scipy.linalg.cython_blas  # noqa: F401 - numba calls this BLAS, which must be loaded before its threads can be limited
import torch
from threadpoolctl import ThreadpoolController

from gmlfm.kernels.cpu.parts import Parts
from gmlfm.kernels.cpu.role_sums import CpuRoleSums
from gmlfm.kernels.cpu.role_walks import PieceArrays
from gmlfm.kernels.cpu.softmax_loss import CpuSoftmaxLoss
from gmlfm.kernels.softmax_loss import SoftmaxColumns, SoftmaxRows, SoftmaxTargets
from gmlfm.machine import usable_processors

N_ROWS, WIDTH, N_ITEMS, N_NEGATIVES, SGEMM_SIZE = 2048, 64, 3706, 512, 4096
LENGTH = 100  # of the masked history, and the middle one of those whose sums are measured
ROLES = ("last", "recent", "past")
SGEMM = f"torch sgemm {SGEMM_SIZE}^3"


def softmax_step(rng: np.random.Generator, parts: Parts, n_columns: int) -> Callable[[], object]:
    """Forward and both gradients; with fewer columns than items the columns are shared negatives."""

    def normal(*shape: int) -> np.ndarray:
        return (0.3 * rng.normal(size=shape)).astype(np.float32)

    column_of_item = np.full(N_ITEMS, -1, np.int32)
    column_of_item[rng.permutation(N_ITEMS)[:n_columns]] = np.arange(n_columns)
    start = np.arange(N_ROWS) * LENGTH
    target_columns = column_of_item[rng.integers(0, N_ITEMS, N_ROWS)].astype(np.int64)
    mask_items = rng.integers(0, N_ITEMS, N_ROWS * LENGTH).astype(np.int32)
    rows = SoftmaxRows(normal(N_ROWS, WIDTH), target_columns, mask_items, start, start + LENGTH)
    correction = float(np.log(N_ITEMS / n_columns))
    columns = SoftmaxColumns(normal(n_columns, WIDTH), normal(n_columns), column_of_item, correction)
    targets = SoftmaxTargets(normal(N_ROWS, WIDTH), normal(N_ROWS)) if n_columns < N_ITEMS else None
    loss = CpuSoftmaxLoss(parts)
    return lambda: loss(rows, columns, targets)


def role_sums_step(rng: np.random.Generator, parts: Parts, piece_length: int, length: int) -> Callable[[], object]:
    """Forward and back: pieces whose first rows have so many events before them, all within the window."""
    n_pieces, n_events = N_ROWS // piece_length, length + piece_length - 1
    first = np.repeat(np.arange(n_pieces) * n_events, piece_length)
    stop = first + length + np.tile(np.arange(piece_length), n_pieces)
    events = rng.integers(0, N_ITEMS, n_pieces * n_events).astype(np.int32)
    batch = PieceArrays(
        events, rng.random(len(events)) >= 0.2, np.maximum(first, stop - length), stop, np.arange(n_pieces + 1) * piece_length
    )
    vectors = rng.normal(size=(len(ROLES), N_ITEMS, WIDTH)).astype(np.float32)
    gradient = rng.normal(size=(N_ROWS, WIDTH)).astype(np.float32)
    sums = CpuRoleSums(ROLES, 5.5, parts)

    def step() -> None:
        sums.forward(batch, vectors, summed=True)
        sums.backward(gradient)

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=usable_processors())
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rng, parts = np.random.default_rng(0), Parts(options.threads)
    left, right, product = (torch.randn(SGEMM_SIZE, SGEMM_SIZE) for _ in range(3))
    steps: dict[str, Callable[[], object]] = {SGEMM: lambda: torch.mm(left, right, out=product)}
    flops = {SGEMM: 2 * SGEMM_SIZE**3}
    for n_columns in (N_ITEMS, N_NEGATIVES):
        name = f"softmax, {n_columns} columns"
        steps[name], flops[name] = softmax_step(rng, parts, n_columns), 6 * N_ROWS * n_columns * WIDTH
    for piece_length in (8, 1):
        for length in (10, LENGTH, 1000):
            name = f"history sums, pieces of {piece_length}, {length} events"
            steps[name] = role_sums_step(rng, parts, piece_length, length)
    times: dict[str, list[float]] = {name: [] for name in steps}
    busy_times: dict[str, list[float]] = {name: [] for name in steps}
    with ThreadpoolController().limit(limits=1, user_api="blas"):
        for step in steps.values():
            step()
        for _ in range(options.rounds):
            for name, step in steps.items():
                samples, busy_samples = [], []
                for _ in range(1 if name == SGEMM else 5):
                    started, started_busy = time.perf_counter(), time.process_time()
                    step()
                    samples.append(time.perf_counter() - started)
                    busy_samples.append(time.process_time() - started_busy)
                times[name].append(min(samples))
                busy_times[name].append(min(busy_samples))
    print(f"{options.threads} threads, {N_ROWS} rows of width {WIDTH}; best of {options.rounds} rounds (median round)")
    for heading, seconds in (("by the clock", times), ("by processor time", busy_times)):
        print(f"{heading}:")
        best = {name: min(samples) for name, samples in seconds.items()}
        rates = {name: n_flops / best[name] for name, n_flops in flops.items()}
        whole = best[f"softmax, {N_ITEMS} columns"]
        for name, samples in seconds.items():
            text = f"  {name:40} {best[name] * 1e3:8.2f} ms ({statistics.median(samples) * 1e3:.2f})"
            if name in flops:
                text += f"  {rates[name] / 1e9:6.1f} GFLOP/s, {rates[name] / rates[SGEMM]:.2f} of the sgemm"
            else:
                text += f"  {N_ROWS / best[name]:,.0f} rows/s, {best[name] / whole:.2f} of the whole catalogue's softmax"
            print(text)


if __name__ == "__main__":
    main()
