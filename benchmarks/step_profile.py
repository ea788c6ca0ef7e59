"""Where a compiled GML-FM step's time goes: its parts one after another on one thread, in microseconds.

python benchmarks/step_profile.py [--data-root DIR] [--k 64] [--batch 256]     # real ML-1M rows, else the built-in market's
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

from gmlfm import load_dataset
from gmlfm.errors import DataError
from gmlfm.fitting.memory import MemoryPlan
from gmlfm.kernels.cpu import pairs_transform
from gmlfm.kernels.cpu.pairs import walk_pairs
from gmlfm.kernels.cpu.rows import assign_slots, release_slots
from gmlfm.models.gradient import GradientModel
from gmlfm.training.engines.cpu import PairsEngine, one_blas_thread
from gmlfm.training.row_trainer import RowTrainer
from gmlfm.training.settings import Settings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root")
    parser.add_argument("--data", default="ml-1m", help="a dataset's name or folder (default: ml-1m)")
    parser.add_argument("--k", type=int, default=64)
    parser.add_argument("--batch", type=int, default=256)
    options = parser.parse_args()
    try:
        data = load_dataset(options.data, data_root=options.data_root)
    except DataError:
        data = load_dataset("bazaar")
    settings = Settings.make("gml-fm-unit", "topn", {"k": options.k, "batch_size": options.batch, "threads": 1})
    inputs = MemoryPlan(data, settings, "leave-one-out", {}, "cpu").selection_inputs()
    model, batches = settings.build(inputs.layout), inputs.batches()
    assert isinstance(model, GradientModel)
    size = batches.groups_per_step
    engine = RowTrainer(model, inputs.layout.n_rows, settings.training).engine
    assert isinstance(engine, PairsEngine)
    groups = engine.groups(next(batches.epoch(0)))
    rows, params, rule, shape = engine.rows, engine.dense.values[0], engine.rule, engine.shape
    work = engine.work(size, groups)
    share = np.float32(1 / groups.labels[:size].size)

    def slots() -> int:
        n_distinct: int = assign_slots(groups, 0, size, rows.slot, work.rows, work.user_slots, work.item_slots)
        release_slots(rows.slot, work.rows, 0, n_distinct)
        return n_distinct

    with one_blas_thread():
        n_distinct = slots()
        source, matrix = work.features[0, :n_distinct], pairs_transform.matrices_of(shape, params)[0]
        parts: dict[str, Callable[[], object]] = {
            "distinct rows": slots,
            "transform": lambda: pairs_transform.transform(shape, rows.table, params, work, 0, n_distinct),
            "pairs, forward and back": lambda: walk_pairs(
                shape, rule, groups, share, 0, 0, size, params, rows.table, work, n_distinct, 0
            ),
            "way back and Adam": lambda: pairs_transform.finish_rows(shape, rule, rows, params, work, 0, n_distinct, 0, 1),
            "one matrix product of a transform, by numpy": lambda: source @ matrix.T,
        }
        print(f"{data.name}, K = {options.k}, batch {options.batch}, {n_distinct} distinct rows")
        for name, run_part in parts.items():
            run_part()
            best = float("inf")
            for _ in range(5):
                started = time.perf_counter()
                for _ in range(60):
                    run_part()
                best = min(best, (time.perf_counter() - started) / 60)
            print(f"{name:>44}  {best * 1e6:7.1f}")


if __name__ == "__main__":
    main()
