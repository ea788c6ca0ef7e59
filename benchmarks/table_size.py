"""Does a training step's cost depend on the size of the table, and how much memory does training a large one take?
Alternating rounds over a small and a large table, then epochs of the large one, keeping its best weights.

Ids follow one popularity curve, Zipf's with exponent 1.1, over both. python benchmarks/table_size.py
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time
from collections.abc import Iterator

import numpy as np

from gmlfm.models.gradient import GradientModel
from gmlfm.training.options import TrainingOptions
from gmlfm.training.row_trainer import RowTrainer
from gmlfm.training.sampling.groups import Batch
from gmlfm.training.settings import Settings
from gmlfm.training.trainer import NullObserver

FIELDS = 6  # three on each side, as ML-1M has


def zipf(n: int, size: tuple[int, ...], rng: np.random.Generator, exponent: float = 1.1) -> np.ndarray:
    """Ranks of 1..n with probability proportional to rank^-exponent, by the inverse of the continuous curve."""
    low, high = 0.5 ** (1 - exponent), (n + 0.5) ** (1 - exponent)
    ranks = (low + rng.random(size) * (high - low)) ** (1 / (1 - exponent))
    return np.clip(np.rint(ranks), 1, n).astype(np.int32)


class MadeBatches:
    """Batches made beforehand, one step each."""

    def __init__(self, n_attributes: int, n_steps: int, n_groups: int, n_negatives: int) -> None:
        rng = np.random.default_rng(0)
        self.batches: list[Batch] = []
        for _ in range(n_steps):
            user_ids = zipf(n_attributes, (n_groups, FIELDS // 2), rng)
            item_ids = zipf(n_attributes, (n_groups, 1 + n_negatives, FIELDS // 2), rng)
            labels = np.full((n_groups, 1 + n_negatives), -1.0, np.float32)
            labels[:, 0] = 1.0
            user_x, item_x = np.ones(user_ids.shape, np.float32), np.ones(item_ids.shape, np.float32)
            self.batches.append(Batch(user_ids, user_x, item_ids, item_x, labels, None))
        self.groups_per_step = n_groups
        self.n_instances = sum(batch.labels.size for batch in self.batches)

    @property
    def n_distinct(self) -> float:
        """Rows of a step, on average."""
        return statistics.mean(len(np.unique(np.r_[batch.user_ids.ravel(), batch.item_ids.ravel()])) for batch in self.batches)

    def epoch(self, number: int) -> Iterator[Batch]:
        yield from self.batches

    def cold_start_sampler(self, number: int) -> None:
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs=2, default=(10_000, 10_000_000))
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    settings = Settings.make("gml-fm-unit", "topn", {})
    contenders: list[tuple[int, RowTrainer, MadeBatches]] = []
    for n in options.sizes:
        model, batches = settings.build(), MadeBatches(n, options.steps, 4096 // 5, 4)
        assert isinstance(model, GradientModel)
        trainer = RowTrainer(model, n + 1, TrainingOptions(epochs=2, threads=options.threads), batches)
        contenders.append((n, trainer, batches))
        for batch in batches.batches[:3]:
            list(trainer.engine.run(batch, len(batch)))
    speeds: dict[int, list[float]] = {n: [] for n in options.sizes}
    for _ in range(options.rounds):
        for n, trainer, batches in contenders:
            started = time.perf_counter()
            for batch in batches.batches:
                list(trainer.engine.run(batch, len(batch)))
            speeds[n].append(batches.n_instances / (time.perf_counter() - started))
    medians = {n: statistics.median(values) for n, values in speeds.items()}
    for n, _, batches in contenders:
        print(f"{n:>12,} attributes  {medians[n] / 1e3:6.0f} k instances/s, {batches.n_distinct:,.0f} distinct rows a step")
    small, large = options.sizes
    print(f"{large // small:,} times the table: {medians[small] / medians[large]:.2f} times the cost")
    n, trainer, _ = contenders[1]
    trainer.fit(lambda model: {"ndcg@10": float(trainer.epoch)}, "ndcg@10", NullObserver())
    state = sum(tensor.numel() * tensor.element_size() for tensor in [trainer.table, *trainer.rows.state().values()])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"training {n:,} attributes: weights and moments {state / 1e9:.2f} GB, peak of the process {peak / 1e9:.2f} GB")


if __name__ == "__main__":
    main()
