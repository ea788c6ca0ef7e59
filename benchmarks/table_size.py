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

from gmlfm.fitting.fit import Silent
from gmlfm.training.loop import Trainer, TrainingOptions
from gmlfm.training.sampling.groups import Batch
from gmlfm.training.settings import Settings

FIELDS = 6  # three on each side, as ML-1M has


def zipf(n: int, size: tuple[int, ...], rng: np.random.Generator, exponent: float = 1.1) -> np.ndarray:
    """Ranks of 1..n with probability proportional to rank^-exponent, by the inverse of the continuous curve."""
    low, high = 0.5 ** (1 - exponent), (n + 0.5) ** (1 - exponent)
    ranks = (low + rng.random(size) * (high - low)) ** (1 / (1 - exponent))
    return np.clip(np.rint(ranks), 1, n).astype(np.int32)


def batches(n: int, count: int, groups: int, negatives: int) -> list[Batch]:
    rng = np.random.default_rng(0)
    made = []
    for _ in range(count):
        user_side = zipf(n, (groups, FIELDS // 2), rng)
        item_side = zipf(n, (groups, 1 + negatives, FIELDS // 2), rng)
        labels = np.full((groups, 1 + negatives), -1.0, np.float32)
        labels[:, 0] = 1.0
        one, many = np.ones(user_side.shape, np.float32), np.ones(item_side.shape, np.float32)
        made.append(Batch(user_side, one, item_side, many, labels, None))
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs=2, default=(10_000, 10_000_000))
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    settings = Settings.make("gml-fm", "topn", {})
    sides = []
    for n in options.sizes:
        trainer = Trainer(settings.build(), n + 1, TrainingOptions(epochs=2, threads=options.threads))
        made = batches(n, options.steps, 4096 // 5, 4)
        distinct = statistics.mean(len(np.unique(np.r_[one.user_ids.ravel(), one.item_ids.ravel()])) for one in made)
        sides.append((n, trainer, made, distinct))
        for batch in made[:3]:
            list(trainer.steps().run(batch, len(batch)))
    speeds: dict[int, list[float]] = {n: [] for n in options.sizes}
    for _ in range(options.rounds):
        for n, trainer, made, _ in sides:
            started = time.perf_counter()
            for batch in made:
                list(trainer.steps().run(batch, len(batch)))
            speeds[n].append(sum(batch.labels.size for batch in made) / (time.perf_counter() - started))
    for n, _, _, distinct in sides:
        speed = statistics.median(speeds[n]) / 1e3
        print(f"{n:>12,} attributes  {speed:6.0f} k instances/s, {distinct:,.0f} distinct rows a step")
    ratio = statistics.median(speeds[options.sizes[0]]) / statistics.median(speeds[options.sizes[1]])
    print(f"{options.sizes[1] // options.sizes[0]:,} times the table: {ratio:.2f} times the cost")
    n, trainer, made, _ = sides[1]
    trainer.fit(Made(made), lambda model, table: {"ndcg@10": float(trainer.epoch)}, "ndcg@10", Silent())
    state = sum(one.numel() * one.element_size() for one in [trainer.table, *trainer.rows.state().values()])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"training {n:,} attributes: weights and moments {state / 1e9:.2f} GB, peak of the process {peak / 1e9:.2f} GB")


class Made:
    """Batches made beforehand."""

    def __init__(self, made: list[Batch]) -> None:
        self._made, self.groups_per_step = made, len(made[0])
        self.n_instances = sum(one.labels.size for one in made)

    def epoch(self, number: int) -> Iterator[Batch]:
        yield from self._made


if __name__ == "__main__":
    main()
