"""What training costs: instances a second of every gradient model, in alternating rounds of one run.

python benchmarks/model_speed.py [--data-root DIR]     # real ML-1M rows, else made-up rows of the same shape
"""

from __future__ import annotations

import argparse
import statistics
import time
from itertools import islice
from typing import Any

import torch

from gmlfm import load_dataset
from gmlfm.errors import DataError
from gmlfm.fitting.memory import MemoryPlan
from gmlfm.models.base import FitInputs, FitReport
from gmlfm.models.registry import MODELS
from gmlfm.training.engines.eager import EagerEngine
from gmlfm.training.row_trainer import RowTrainer
from gmlfm.training.sampling.groups import Batch
from gmlfm.training.settings import Settings, applicable


class Measured:
    """As a model's plan: instead of training it, its trainer and some batches are made."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def train(self, model: Any, inputs: FitInputs) -> FitReport:
        batches = inputs.batches()
        n_rows, field_of_row = inputs.layout.n_rows, inputs.layout.field_of_row()
        self.trainer = RowTrainer(model, n_rows, self._settings.training, batches, field_of_row=field_of_row)
        self._size = batches.groups_per_step
        # Compiled steps take many at once, as in training; the others a few, or the slowest would take minutes.
        self._batches: list[Batch] = list(islice(batches.epoch(0), 4))
        if isinstance(self.trainer.engine, EagerEngine):
            steps = (step for batch in self._batches for step in batch.steps(self._size))
            self._batches = list(islice(steps, 3 if model.whole_table else 20))
        list(self.trainer.engine.run(self._batches[0], self._size))
        return FitReport()

    train_episodes = train

    def speed(self) -> float:
        """Instances a second of one round."""
        started = time.perf_counter()
        for batch in self._batches:
            list(self.trainer.engine.run(batch, self._size))
        return sum(batch.labels.size for batch in self._batches) / (time.perf_counter() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root")
    parser.add_argument("--data", default="ml-1m", help="a dataset's name or folder (default: ml-1m)")
    parser.add_argument("--k", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    try:
        data = load_dataset(options.data, data_root=options.data_root)
    except DataError:
        data = load_dataset("bazaar")
    contenders: dict[str, Measured] = {}
    for name, info in MODELS.items():
        if not applicable(info)["batches"] or info.cls.reads_sequences:
            continue
        values = {"k": options.k, "batch_size": options.batch, "n_negatives": 4, "threads": options.threads}
        if applicable(info)["history"]:
            values["history"] = "none"
        settings = Settings.make(name, "topn", values)
        inputs = MemoryPlan(data, settings, "leave-one-out", {}, "cpu").selection_inputs()
        contenders[name] = Measured(settings)
        settings.build(inputs.layout).fit(inputs, contenders[name])
    speeds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(options.rounds):
        for name, contender in contenders.items():
            speeds[name].append(contender.speed())
    print(f"{data.name}, K = {options.k}, batch {options.batch}, {options.threads} threads, median of {options.rounds} rounds")
    medians = {name: statistics.median(values) for name, values in speeds.items()}
    for name, median in sorted(medians.items(), key=lambda entry: -entry[1]):
        print(f"{name:>12}  {median / 1e3:7.0f} k instances/s  {median / medians['fm']:6.2f} of fm")


if __name__ == "__main__":
    main()
