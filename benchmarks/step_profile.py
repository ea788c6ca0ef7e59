"""Where a compiled GML-FM step's time goes: its parts one after another on one lane, microseconds.

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
from gmlfm.kernels.cpu import gml
from gmlfm.kernels.cpu.rows import give_slots, take_slots_back
from gmlfm.training.engines.cpu import CompiledSteps, _one_blas_thread
from gmlfm.training.loop import Trainer
from gmlfm.training.settings import Settings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root")
    parser.add_argument("--k", type=int, default=64)
    parser.add_argument("--batch", type=int, default=256)
    options = parser.parse_args()
    try:
        data = load_dataset("ml-1m", data_root=options.data_root)
    except DataError:
        data = load_dataset("bazaar")
    settings = Settings.make("gml-fm", "topn", {"k": options.k, "batch_size": options.batch, "threads": 1})
    material = MemoryPlan(data, settings, "leave-one-out", {}, "cpu").first()
    batches = material.batches()
    size = batches.groups_per_step
    steps = Trainer(settings.build(material.layout), material.layout.n_rows, settings.training).steps()
    assert isinstance(steps, CompiledSteps)
    groups = steps.groups(next(batches.epoch(0)))
    rows, line, rule, shape = steps._rows, steps._dense.values[0], steps._rule, steps.shape()
    work = steps._work(size, groups)
    share = np.float32(1 / groups.labels[:size].size)

    def slots() -> int:
        found = give_slots(groups, 0, size, rows.slot, work.rows, work.user_side, work.item_side)
        take_slots_back(rows.slot, work.rows, found)
        return found

    with _one_blas_thread():
        found = slots()
        source, matrix = work.features[0, :found], gml.matrices_of(shape, line)[0]
        parts: dict[str, Callable[[], object]] = {
            "distinct rows": slots,
            "transform": lambda: gml.transform(shape, rows.table, line, work, 0, found),
            "pairs, forward and back": lambda: gml.walk_groups(
                shape, rule, groups, share, 0, 0, size, line, rows.table, work, found, 0
            ),
            "way back and Adam": lambda: gml.finish_rows(shape, rule, rows, line, work, 0, found, 0, 1),
            "one matrix product of a transform, by numpy": lambda: source @ matrix.T,
        }
        print(f"{data.name}, K = {options.k}, batch {options.batch}, {found} distinct rows")
        for name, part in parts.items():
            part()
            best = float("inf")
            for _ in range(5):
                started = time.perf_counter()
                for _ in range(60):
                    part()
                best = min(best, (time.perf_counter() - started) / 60)
            print(f"{name:>44}  {best * 1e6:7.1f}")


if __name__ == "__main__":
    main()
