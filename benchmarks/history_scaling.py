"""Does a training step with histories cost more where the catalogue is large, and where histories are long?

python benchmarks/history_scaling.py [--threads 1]

Rounds over made-up data of each size in turn; a step counts whole, its batch included. Items follow one popularity curve,
Zipf's with exponent 1.1, so that a larger catalogue has a longer tail; `distinct rows` is how many rows of the table a step
updates, which no way to take it can avoid. Two questions about length: users did so much before while `history_length`
stays at its default, and `history_length` itself is so much. By processor time, which a busy machine disturbs less, and by the
clock.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator

import numpy as np
import torch

from gmlfm.data.attributes import ROLES, AttributeTable, Learned, item_block, lay_out, no_text, with_roles
from gmlfm.data.encoding import Encoded
from gmlfm.data.histories import Histories
from gmlfm.models.base import HistorySpec
from gmlfm.models.gradient import GradientModel
from gmlfm.training.history_options import HistoryOptions
from gmlfm.training.row_trainer import RowTrainer
from gmlfm.training.sampling.batches import BatchOptions
from gmlfm.training.sampling.groups import IdRows
from gmlfm.training.sampling.history_batches import HistoryBatch, HistoryBatches
from gmlfm.training.settings import Settings

N_USERS, TARGETS_PER_USER, N_GROUPS, N_CATEGORIES = 512, 64, 20, 200
BATCH_SIZE, N_EVENTS = 2048, 50
CATALOGUES, LENGTHS = (10_000, 100_000, 1_000_000), (10, 100, 1000)


def zipf_items(n_items: int, size: tuple[int, int], rng: np.random.Generator, exponent: float = 1.1) -> np.ndarray:
    """Numbers below n_items, number i with probability proportional to (i + 1)^-exponent, by the inverse of the curve."""
    low, high = 0.5 ** (1 - exponent), (n_items + 0.5) ** (1 - exponent)
    ranks = (low + rng.random(size) * (high - low)) ** (1 / (1 - exponent))
    return np.clip(np.rint(ranks) - 1, 0, n_items - 1).astype(np.int32)


def made_batches(n_items: int, n_events: int, options: BatchOptions, history: HistoryOptions) -> tuple[HistoryBatches, int]:
    """Users of `n_events` earlier events each, then their targets; and the rows of the table."""
    rng = np.random.default_rng(0)
    learned = [
        Learned("user", "user", "id", 0, no_text()),
        Learned("user", "group", "category", N_GROUPS, no_text()),
        Learned("item", "item", "id", n_items, no_text()),
        Learned("item", "category", "category", N_CATEGORIES, no_text()),
    ]
    codes = with_roles(lay_out(learned), history.roles)
    user_id, group, item_id, category = codes[:4]
    shuffled = rng.permutation(n_items).astype(np.int32)  # an item's popularity says nothing about its row
    user_ids = np.stack([np.full(N_USERS, user_id.unknown_row), group.offset + 2 + rng.integers(0, N_GROUPS, N_USERS)], axis=1)
    item_ids = np.stack(
        [item_id.offset + 2 + np.arange(n_items), category.offset + 2 + rng.integers(0, N_CATEGORIES, n_items)], axis=1
    )
    users, items = (AttributeTable(ids.astype(np.int32), np.ones(ids.shape, np.float32)) for ids in (user_ids, item_ids))
    n_rows_per_user = n_events + TARGETS_PER_USER
    events = shuffled[zipf_items(n_items, (N_USERS, n_rows_per_user), rng)].ravel()
    order = np.tile(np.arange(n_rows_per_user, dtype=np.int64), N_USERS)
    owners = np.repeat(np.arange(N_USERS, dtype=np.int32), n_rows_per_user)
    starts = np.arange(N_USERS + 1, dtype=np.int64) * n_rows_per_user
    histories = Histories(starts, events, order, np.ones(len(events), bool), owners, events, order)
    ids = IdRows.from_counts(codes, np.ones(n_items), items)
    spec = HistorySpec(history.roles, history.half_life, history.history_length, item_block(codes))
    no_context = AttributeTable(np.zeros((len(events), 0), np.int32), np.zeros((len(events), 0), np.float32))
    encoded = Encoded(users, no_context, items)
    batches = HistoryBatches(
        np.flatnonzero(order >= n_events),
        histories,
        encoded,
        ids,
        spec,
        options,
        dropout=history.history_dropout,
        piece=history.piece,
        candidates=np.arange(n_items, dtype=np.int32),
    )
    return batches, codes[-1].end


class Contender:
    """Training on data of one size; goes through epoch after epoch."""

    def __init__(self, model: str, n_items: int, n_events: int, length: int, n_negatives: int, threads: int) -> None:
        settings = Settings.make(
            model, "topn", {"history": ",".join(ROLES), "negatives": n_negatives, "history_length": length}
        )
        options = BatchOptions(batch_size=BATCH_SIZE, n_negatives=n_negatives, cold_start_rate=settings.batches.cold_start_rate)
        batches, n_rows = made_batches(n_items, n_events, options, settings.history)
        built = settings.build()
        assert isinstance(built, GradientModel)
        self._trainer = RowTrainer(built, n_rows, settings.training, batches)
        self._steps = self._epochs(batches)
        self.n_distinct: list[int] = []
        count_rows(self._trainer, self.n_distinct)
        self.clock_seconds: list[float] = []
        self.busy_seconds: list[float] = []
        self.round(3)
        self.clock_seconds.clear()
        self.busy_seconds.clear()

    def _epochs(self, batches: HistoryBatches) -> Iterator[HistoryBatch]:
        number = 0
        while True:
            yield from batches.epoch(number)
            number += 1

    def round(self, n_steps: int) -> None:
        """Seconds a row, of so many steps."""
        clock, busy, n_rows = time.perf_counter(), time.process_time(), 0
        for _ in range(n_steps):
            batch = next(self._steps)
            n_rows += sum(n for _, n in self._trainer.engine.run(batch, len(batch)))
        self.clock_seconds.append((time.perf_counter() - clock) / n_rows)
        self.busy_seconds.append((time.process_time() - busy) / n_rows)


def count_rows(trainer: RowTrainer, counts: list[int]) -> None:
    """Writes down how many rows each step updates."""
    updates = trainer.engine._updates  # type: ignore[attr-defined]
    step = updates.step

    def counted(numbers: torch.Tensor, values: torch.Tensor, gradient: torch.Tensor) -> None:
        counts.append(len(numbers))
        step(numbers, values, gradient)

    updates.step = counted


def compare(title: str, contenders: dict[str, Contender], rounds: int, steps: int) -> None:
    for _ in range(rounds):
        for contender in contenders.values():
            contender.round(steps)
    print(title)
    base = next(iter(contenders.values()))
    for name, contender in contenders.items():
        ratios = [
            statistics.median(mine / other for mine, other in zip(ours, others, strict=True))
            for ours, others in (
                (contender.busy_seconds, base.busy_seconds),
                (contender.clock_seconds, base.clock_seconds),
            )
        ]
        microseconds = statistics.median(contender.busy_seconds) * 1e6
        print(
            f"  {name:>28}  {microseconds:7.1f} us a row of processor time, {ratios[0]:.2f} of the first, "
            f"{ratios[1]:.2f} by the clock, {statistics.mean(contender.n_distinct):8,.0f} distinct rows a step"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="fm")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--negatives", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=8, help="of a round")
    parser.add_argument("--catalogue", type=int, default=100_000, help="items, where lengths are compared (default: 100000)")
    parser.add_argument("--only", choices=("catalogue", "events", "length"), help="one of the three comparisons")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    usual = HistoryOptions().history_length
    rest, run = (options.negatives, options.threads), (options.rounds, options.steps)
    print(f"{options.model}, K = 64, {BATCH_SIZE} rows, {options.negatives} negatives a step, {options.threads} threads")
    if options.only in (None, "catalogue"):
        by_size = {f"{n:,} items": Contender(options.model, n, N_EVENTS, usual, *rest) for n in CATALOGUES}
        compare(f"by the catalogue, users of {N_EVENTS} earlier events and more", by_size, *run)
        del by_size
    if options.only in (None, "events"):
        by_events = {f"{n:,} events before": Contender(options.model, options.catalogue, n, usual, *rest) for n in LENGTHS}
        compare(f"by what users did before, {options.catalogue:,} items, history_length {usual}", by_events, *run)
        del by_events
    if options.only in (None, "length"):
        by_length = {f"history_length {n:,}": Contender(options.model, options.catalogue, 1000, n, *rest) for n in LENGTHS}
        compare(f"by history_length, {options.catalogue:,} items, users of 1,000 earlier events", by_length, *run)


if __name__ == "__main__":
    main()
