"""What training costs: instances a second of every gradient model at K = 64, in alternating rounds of one run.

python benchmarks/model_speed.py [--data-root DIR]     # real ML-1M rows, else made-up rows of the same shape
"""

from __future__ import annotations

import argparse
import statistics
import time
from itertools import islice

import torch

from gmlfm import load_dataset
from gmlfm.errors import DataError
from gmlfm.fitting.memory import MemoryPlan
from gmlfm.models.registry import MODELS
from gmlfm.training.engines.eager import ReferenceSteps
from gmlfm.training.loop import Trainer
from gmlfm.training.sampling.groups import Batch
from gmlfm.training.settings import Settings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    try:
        data = load_dataset("ml-1m", data_root=options.data_root)
    except DataError:
        data = load_dataset("bazaar")
    sides: dict[str, tuple[Trainer, list[Batch]]] = {}
    for name, info in MODELS.items():
        if info.make is None:
            continue
        settings = Settings.make(
            name, "topn", {"k": 64, "batch_size": options.batch, "n_negatives": 4, "threads": options.threads}
        )
        job = MemoryPlan(data, settings, "leave-one-out", {}, "cpu")
        material = job.first()
        model = settings.build(material.layout)
        material.introduce(model)
        trainer = Trainer(model, material.layout.n_rows, settings.training, "cpu", material.layout.field_of_row())
        made = material.batches()
        size = made.groups_per_step
        parts = [part for batch in islice(made.epoch(0), 2) for part in batch.steps(size)]
        fast = not isinstance(trainer.steps(), ReferenceSteps)
        # Compiled steps take many at once, as in training; the others a few, or the slowest would take minutes.
        sides[name] = trainer, list(islice(made.epoch(0), 4)) if fast else parts[: 3 if model.whole_table else 20]
        list(trainer.steps().run(sides[name][1][0], size))
    speeds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(options.rounds):
        for name, (trainer, batches) in sides.items():
            started = time.perf_counter()
            for batch in batches:
                list(trainer.steps().run(batch, size))
            speeds[name].append(sum(one.labels.size for one in batches) / (time.perf_counter() - started))
    print(f"{data.name}, K = 64, batch {options.batch}, {options.threads} threads, median of {options.rounds} rounds")
    base = statistics.median(speeds["fm"])
    for name, found in sorted(speeds.items(), key=lambda one: -statistics.median(one[1])):
        print(f"{name:>12}  {statistics.median(found) / 1e3:7.0f} k instances/s  {statistics.median(found) / base:6.2f} of fm")


if __name__ == "__main__":
    main()
